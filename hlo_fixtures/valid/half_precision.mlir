// A float16 activation with a partial last block: 36 elements, two scales.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: stablehlo.constant dense<[3, 36]> : tensor<2xi64>
// CHECK: stablehlo.custom_call @QuantizeMX_f16_e5m2(
// CHECK-SAME: tensor<3x36xf16>) -> (tensor<3x9xui32>, tensor<3x2xui8>)

#loc1 = loc("x")
module @jit_half_precision attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x36xf16> loc("x")) -> (tensor<3x9xui32> {jax.result_info = "result[0]"}, tensor<3x2xui8> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f16> loc(#loc8)
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<3x36xf16> loc(#loc9)
    %1 = stablehlo.multiply %arg0, %0 : tensor<3x36xf16> loc(#loc9)
    %2:2 = stablehlo.custom_call @QuantizeMX(%1) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: \22float8_e5m2\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<3x36xf16>) -> (tensor<3x9xui32>, tensor<3x2xui8>) loc(#loc10)
    return %2#0, %2#1 : tensor<3x9xui32>, tensor<3x2xui8> loc(#loc8)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/generate.py":60:18 to :113)
#loc3 = loc("hlo_fixtures/programs.py":97:30 to :35)
#loc4 = loc("hlo_fixtures/programs.py":97:11 to :51)
#loc5 = loc("lower"(#loc2))
#loc6 = loc("half_precision"(#loc3))
#loc7 = loc("half_precision"(#loc4))
#loc8 = loc("jit(half_precision)"(#loc5))
#loc9 = loc("jit(half_precision)/mul"(#loc6))
#loc10 = loc("jit(half_precision)/quantize_mx"(#loc7))

// float4 elements in 16-bit containers, which only `--allow-fp4` accepts.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo --allow-fp4
// CHECK: stablehlo.custom_call @QuantizeMX_bf16_e2m1fn(
// CHECK-SAME: -> (tensor<4x16xui16>, tensor<4x2xui8>)

#loc1 = loc("x")
module @jit_fp4 attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("x")) -> (tensor<4x16xui16> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: \22float4_e2m1fn\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui16>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui16>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/programs.py":107:11 to :49)
#loc3 = loc("hlo_fixtures/generate.py":60:18 to :113)
#loc4 = loc("fp4"(#loc2))
#loc5 = loc("lower"(#loc3))
#loc6 = loc("jit(fp4)/quantize_mx"(#loc4))
#loc7 = loc("jit(fp4)"(#loc5))

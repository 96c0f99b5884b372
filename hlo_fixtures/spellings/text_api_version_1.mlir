// Two results and a JSON text configuration, api_version 1.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: %[[DIMS:.*]] = stablehlo.constant dense<[4, 64]> : tensor<2xi64>
// CHECK-NEXT: %[[DIM:.*]] = stablehlo.constant dense<1> : tensor<i64>
// CHECK-NEXT: %[[BLOCK:.*]] = stablehlo.constant dense<32> : tensor<i64>
// CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i64>
// CHECK-NEXT: %[[META:.*]] = stablehlo.tuple %[[DIMS]], %[[DIM]], %[[BLOCK]], %[[ZERO]]
// CHECK-NEXT: stablehlo.custom_call @QuantizeMX_bf16_e5m2(%[[META]], %arg0) {backend_config = ""
// CHECK-NOT: QuantizeMX(

#loc1 = loc("x")
module @jit_quantize attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("x")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {backend_config = "{\22block_size\22: 32, \22dim\22: -1, \22dtype\22: \22float8_e5m2\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/spellings.py":20:15 to 22:12)
#loc3 = loc("hlo_fixtures/generate.py":60:18 to :113)
#loc4 = loc("text_config.<locals>.quantize"(#loc2))
#loc5 = loc("lower"(#loc3))
#loc6 = loc("jit(quantize)/ffi_call"(#loc4))
#loc7 = loc("jit(quantize)"(#loc5))

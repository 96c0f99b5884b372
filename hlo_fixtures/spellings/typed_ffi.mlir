// The typed FFI: an api_version 4 dictionary of attributes.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: %[[DIMS:.*]] = stablehlo.constant dense<[4, 64]> : tensor<2xi64>
// CHECK-NEXT: %[[DIM:.*]] = stablehlo.constant dense<1> : tensor<i64>
// CHECK-NEXT: %[[BLOCK:.*]] = stablehlo.constant dense<32> : tensor<i64>
// CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i64>
// CHECK-NEXT: %[[META:.*]] = stablehlo.tuple %[[DIMS]], %[[DIM]], %[[BLOCK]], %[[ZERO]]
// CHECK-NEXT: stablehlo.custom_call @QuantizeMX_bf16_e5m2(%[[META]], %arg0) {backend_config = ""
// CHECK-NOT: QuantizeMX(

#loc1 = loc("x")
module @jit_typed_ffi attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("x")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {backend_config = "", mhlo.backend_config = {block_size = 32 : i64, dim = -1 : i64, dtype = "float8_e5m2", scale_method = "EMAX"}, operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/spellings.py":30:11 to 32:5)
#loc3 = loc("hlo_fixtures/generate.py":60:18 to :113)
#loc4 = loc("typed_ffi"(#loc2))
#loc5 = loc("lower"(#loc3))
#loc6 = loc("jit(typed_ffi)/ffi_call"(#loc4))
#loc7 = loc("jit(typed_ffi)"(#loc5))

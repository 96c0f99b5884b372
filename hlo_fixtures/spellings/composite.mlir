// A composite of the name, with a fallback that nothing needs once the call is legalized.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: %[[DIMS:.*]] = stablehlo.constant dense<[4, 64]> : tensor<2xi64>
// CHECK-NEXT: %[[DIM:.*]] = stablehlo.constant dense<1> : tensor<i64>
// CHECK-NEXT: %[[BLOCK:.*]] = stablehlo.constant dense<32> : tensor<i64>
// CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i64>
// CHECK-NEXT: %[[META:.*]] = stablehlo.tuple %[[DIMS]], %[[DIM]], %[[BLOCK]], %[[ZERO]]
// CHECK-NEXT: stablehlo.custom_call @QuantizeMX_bf16_e5m2(%[[META]], %arg0) {backend_config = ""
// CHECK-NOT: QuantizeMX(

#loc = loc(unknown)
#loc1 = loc("x")
module @jit_composite attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("x")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.composite "jax_mx.QuantizeMX" %arg0 {composite_attributes = {block_size = 32 : i64, dim = -1 : i64, dtype = "float8_e5m2", scale_method = "EMAX"}, decomposition = @jax_mx.QuantizeMX} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc12)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc13)
  } loc(#loc)
  func.func private @jax_mx.QuantizeMX(%arg0: tensor<4x64xbf16> loc(unknown)) -> (tensor<4x16xui32>, tensor<4x2xui8>) {
    %c = stablehlo.constant dense<0> : tensor<ui32> loc(#loc)
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<ui32>) -> tensor<4x16xui32> loc(#loc14)
    %c_0 = stablehlo.constant dense<0> : tensor<ui8> loc(#loc)
    %1 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<ui8>) -> tensor<4x2xui8> loc(#loc15)
    return %0, %1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc)
  } loc(#loc9)
} loc(#loc)
#loc2 = loc("hlo_fixtures/spellings.py":42:11 to :87)
#loc3 = loc("hlo_fixtures/generate.py":60:18 to :113)
#loc4 = loc("composite")
#loc5 = loc("hlo_fixtures/spellings.py":39:15 to :45)
#loc6 = loc("hlo_fixtures/spellings.py":39:47 to :75)
#loc7 = loc("composite"(#loc2))
#loc8 = loc("lower"(#loc3))
#loc9 = loc("composite:"(#loc4))
#loc10 = loc("composite.<locals>.zeros"(#loc5))
#loc11 = loc("composite.<locals>.zeros"(#loc6))
#loc12 = loc("jit(composite)/composite"(#loc7))
#loc13 = loc("jit(composite)"(#loc8))
#loc14 = loc("broadcast_in_dim"(#loc10))
#loc15 = loc("broadcast_in_dim"(#loc11))

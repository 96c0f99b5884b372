// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: %[[DIMS:.*]] = stablehlo.constant dense<[4, 64]> : tensor<2xi64>
// CHECK-NEXT: %[[DIM:.*]] = stablehlo.constant dense<1> : tensor<i64>
// CHECK-NEXT: %[[BLOCK:.*]] = stablehlo.constant dense<32> : tensor<i64>
// CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i64>
// CHECK-NEXT: %[[META:.*]] = stablehlo.tuple %[[DIMS]], %[[DIM]], %[[BLOCK]], %[[ZERO]]
// CHECK-NEXT: stablehlo.custom_call @QuantizeMX_bf16_e5m2(%[[META]], %arg0) {backend_config = ""
// CHECK-NOT: QuantizeMX(

func.func @main(%arg0: tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) {
  %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {
    mhlo.backend_config = {block_size = 32 : i64, dim = -1 : i64, dtype = "float8_e5m2", scale_method = "EMAX"}
  } : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)
  return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8>
}

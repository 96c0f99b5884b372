// Two results with a sharding each, in both notations. The rule goes: Shardy knows no tuples, as metadata is.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>
// CHECK: custom_call @QuantizeMX_bf16_e5m2(
// CHECK-SAME: mhlo.sharding = "{{[{][{]}}devices=[2,4]<=[8]}, {devices=[2,1,4]<=[8] last_tile_dim_replicate}}"
// CHECK-SAME: sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {}]>]>} :
// CHECK-NOT: sharding_rule

sdy.mesh @mesh = <["data"=2, "model"=4]>
func.func @main(%arg0: tensor<16x256xbf16>) -> (tensor<16x64xui32>, tensor<16x8xui8>) {
  %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {
    api_version = 2 : i32,
    backend_config = "{\22block_size\22:32,\22dim\22:1,\22dtype\22:\22float8_e5m2\22}",
    mhlo.sharding = "{{devices=[2,4]<=[8]}, {devices=[2,1,4]<=[8] last_tile_dim_replicate}}",
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {}]>]>,
    sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, jk], [i, j]) {i=16, j=8, k=8, l=4}, custom>
  } : (tensor<16x256xbf16>) -> (tensor<16x64xui32>, tensor<16x8xui8>)
  return %0#0, %0#1 : tensor<16x64xui32>, tensor<16x8xui8>
}

// The same call written for one shard, in a shard_map.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: sdy.manual_computation(%arg0)
// CHECK-SAME: in_shardings=[<@mesh, [{"data"}, {"model"}]>]
// CHECK-SAME: out_shardings=[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {"model"}]>]
// CHECK-SAME: manual_axes={"data", "model"}
// CHECK: stablehlo.constant dense<[8, 64]>
// CHECK: custom_call @QuantizeMX_bf16_e4m3fn(
// CHECK: sdy.return

#loc1 = loc("x")
#loc3 = loc("shard_map")
#loc7 = loc("shard_map:"(#loc3))
module @jit_manual_shards attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=4]> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 4 : i64}]}} loc(#loc)
  func.func public @main(%arg0: tensor<16x256xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>} loc("x")) -> (tensor<16x64xui32> {jax.result_info = "result[0]"}, tensor<16x8xui8> {jax.result_info = "result[1]"}) {
    %0:2 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"data"}, {"model"}]>] out_shardings=[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {"model"}]>] manual_axes={"data", "model"} (%arg1: tensor<8x64xbf16> loc("shard_map:"(#loc3))) {
      %1:2 = stablehlo.custom_call @QuantizeMX(%arg1) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: \22float8_e4m3fn\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<8x64xbf16>) -> (tensor<8x16xui32>, tensor<8x2xui8>) loc(#loc4)
      sdy.return %1#0, %1#1 : tensor<8x16xui32>, tensor<8x2xui8> loc(#loc7)
    } : (tensor<16x256xbf16>) -> (tensor<16x64xui32>, tensor<16x8xui8>) loc(#loc9)
    return %0#0, %0#1 : tensor<16x64xui32>, tensor<16x8xui8> loc(#loc10)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/sharded.py":50:11 to :89)
#loc4 = loc("quantize_mx")
#loc5 = loc("hlo_fixtures/generate.py":60:18 to :113)
#loc6 = loc("manual_shards"(#loc2))
#loc8 = loc("lower"(#loc5))
#loc9 = loc("jit(manual_shards)/shard_map"(#loc6))
#loc10 = loc("jit(manual_shards)"(#loc8))

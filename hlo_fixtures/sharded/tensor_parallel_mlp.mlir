// Two layers, the first sharded by columns, the second by rows, the examples over the other axis of the mesh.
// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --emit=stablehlo
// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>
// CHECK: %arg0: tensor<16x128xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}
// CHECK-SAME: %arg1: tensor<256x128xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}
// CHECK-SAME: %arg2: tensor<128x256xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}
// CHECK: custom_call @QuantizeMX_bf16_e5m2({{.*}}) {backend_config = ""} :
// CHECK: custom_call @QuantizeMX_bf16_e5m2({{.*}}) {backend_config = ""} :
// CHECK: custom_call @ScaledMatmul_e5m2_e5m2_bf16(
// CHECK: sdy.sharding_constraint %{{.*}} <@mesh, [{"data"}, {"model"}]> : tensor<16x256xbf16>
// CHECK: custom_call @ScaledMatmul_e5m2_e5m2_bf16(
// CHECK: sdy.sharding_constraint %{{.*}} <@mesh, [{"data"}, {}]> : tensor<16x128xbf16>

#loc = loc(unknown)
#loc1 = loc("x")
#loc2 = loc("up")
#loc3 = loc("down")
module @jit_tensor_parallel_mlp attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=4]> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}, {name = "model", size = 4 : i64}]}} loc(#loc)
  func.func public @main(%arg0: tensor<16x128xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>} loc("x"), %arg1: tensor<256x128xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>} loc("up"), %arg2: tensor<128x256xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>} loc("down")) -> (tensor<16x128xbf16> {jax.result_info = "result"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: \22float8_e5m2\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, jk], [i, j]) {i=16, j=4, k=8, l=4} need_replication={l}, custom>} : (tensor<16x128xbf16>) -> (tensor<16x32xui32>, tensor<16x4xui8>) loc(#loc21)
    %1:2 = stablehlo.custom_call @QuantizeMX(%arg1) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: \22float8_e5m2\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, jk], [i, j]) {i=256, j=4, k=8, l=4} need_replication={l}, custom>} : (tensor<256x128xbf16>) -> (tensor<256x32xui32>, tensor<256x4xui8>) loc(#loc22)
    %2 = stablehlo.custom_call @__op$block_scaled_dot(%0#0, %1#0, %0#1, %1#1) {api_version = 2 : i32, backend_config = "{\22scaled_dot_backend_config\22: {\22element_dtype\22: \22float8_e5m2\22, \22lhs_batch_dimensions\22: [], \22lhs_contracting_dimensions\22: [1], \22rhs_batch_dimensions\22: [], \22rhs_contracting_dimensions\22: [1]}}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, kl], [j, kl], [i, k], [j, k])->([i, j]) {i=16, j=256, k=4, l=8} need_replication={l}, custom>} : (tensor<16x32xui32>, tensor<256x32xui32>, tensor<16x4xui8>, tensor<256x4xui8>) -> tensor<16x256xbf16> loc(#loc23)
    %3 = call @relu(%2) : (tensor<16x256xbf16>) -> tensor<16x256xbf16> loc(#loc24)
    %4 = sdy.sharding_constraint %3 <@mesh, [{"data"}, {"model"}]> : tensor<16x256xbf16> loc(#loc25)
    %5:2 = stablehlo.custom_call @QuantizeMX(%4) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: \22float8_e5m2\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, jk], [i, j]) {i=16, j=8, k=8, l=4} need_replication={l}, custom>} : (tensor<16x256xbf16>) -> (tensor<16x64xui32>, tensor<16x8xui8>) loc(#loc21)
    %6:2 = stablehlo.custom_call @QuantizeMX(%arg2) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: \22float8_e5m2\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, jk], [i, j]) {i=128, j=8, k=8, l=4} need_replication={l}, custom>} : (tensor<128x256xbf16>) -> (tensor<128x64xui32>, tensor<128x8xui8>) loc(#loc22)
    %7 = stablehlo.custom_call @__op$block_scaled_dot(%5#0, %6#0, %5#1, %6#1) {api_version = 2 : i32, backend_config = "{\22scaled_dot_backend_config\22: {\22element_dtype\22: \22float8_e5m2\22, \22lhs_batch_dimensions\22: [], \22lhs_contracting_dimensions\22: [1], \22rhs_batch_dimensions\22: [], \22rhs_contracting_dimensions\22: [1]}}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, kl], [j, kl], [i, k], [j, k])->([i, j]) {i=16, j=128, k=8, l=8} need_replication={l}, custom>} : (tensor<16x64xui32>, tensor<128x64xui32>, tensor<16x8xui8>, tensor<128x8xui8>) -> tensor<16x128xbf16> loc(#loc23)
    %8 = sdy.sharding_constraint %7 <@mesh, [{"data"}, {}]> : tensor<16x128xbf16> loc(#loc26)
    return %8 : tensor<16x128xbf16> loc(#loc27)
  } loc(#loc)
  func.func private @relu(%arg0: tensor<16x256xbf16> loc(unknown)) -> tensor<16x256xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16> loc(#loc)
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<16x256xbf16> loc(#loc12)
    %1 = stablehlo.maximum %arg0, %0 : tensor<16x256xbf16> loc(#loc12)
    return %1 : tensor<16x256xbf16> loc(#loc)
  } loc(#loc20)
} loc(#loc)
#loc4 = loc("hlo_fixtures/sharded.py":37:18 to :54)
#loc5 = loc("hlo_fixtures/sharded.py":37:57 to :93)
#loc6 = loc("hlo_fixtures/sharded.py":38:11 to :85)
#loc7 = loc("hlo_fixtures/sharded.py":43:46 to :73)
#loc8 = loc("hlo_fixtures/sharded.py":43:13 to :100)
#loc9 = loc("hlo_fixtures/sharded.py":44:11 to :89)
#loc10 = loc("hlo_fixtures/generate.py":60:18 to :113)
#loc11 = loc("jit")
#loc12 = loc("max")
#loc13 = loc("product"(#loc4))
#loc14 = loc("product"(#loc5))
#loc15 = loc("product"(#loc6))
#loc16 = loc("tensor_parallel_mlp"(#loc7))
#loc17 = loc("tensor_parallel_mlp"(#loc8))
#loc18 = loc("tensor_parallel_mlp"(#loc9))
#loc19 = loc("lower"(#loc10))
#loc20 = loc("jit:"(#loc11))
#loc21 = loc("jit(tensor_parallel_mlp)/quantize_mx"(#loc13))
#loc22 = loc("jit(tensor_parallel_mlp)/quantize_mx"(#loc14))
#loc23 = loc("jit(tensor_parallel_mlp)/scaled_matmul_mx"(#loc15))
#loc24 = loc("jit(tensor_parallel_mlp)/jit(relu)"(#loc16))
#loc25 = loc("jit(tensor_parallel_mlp)/sharding_constraint"(#loc17))
#loc26 = loc("jit(tensor_parallel_mlp)/sharding_constraint"(#loc18))
#loc27 = loc("jit(tensor_parallel_mlp)"(#loc19))

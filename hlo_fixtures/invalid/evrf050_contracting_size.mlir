// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --split-input-file --verify-diagnostics

// expected-error {{[NCC_EVRF050] the contracting sizes differ: 16 in lhs}}
#loc1 = loc("operands[0]")
#loc2 = loc("operands[1]")
#loc3 = loc("operands[2]")
#loc4 = loc("operands[3]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x8x16xui32> loc("operands[0]"), %arg1: tensor<2x4x8xui32> loc("operands[1]"), %arg2: tensor<2x8x2xui8> loc("operands[2]"), %arg3: tensor<2x4x2xui8> loc("operands[3]")) -> (tensor<2x8x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @__op$block_scaled_dot(%arg0, %arg1, %arg2, %arg3) {api_version = 2 : i32, backend_config = "{\22scaled_dot_backend_config\22: {\22lhs_batch_dimensions\22: [0], \22rhs_batch_dimensions\22: [0], \22lhs_contracting_dimensions\22: [2], \22rhs_contracting_dimensions\22: [2], \22element_dtype\22: \22float8_e4m3fn\22}}", operand_layouts = [dense<[2, 1, 0]> : tensor<3xindex>, dense<[2, 1, 0]> : tensor<3xindex>, dense<[2, 1, 0]> : tensor<3xindex>, dense<[2, 1, 0]> : tensor<3xindex>], result_layouts = [dense<[2, 1, 0]> : tensor<3xindex>]} : (tensor<2x8x16xui32>, tensor<2x4x8xui32>, tensor<2x8x2xui8>, tensor<2x4x2xui8>) -> tensor<2x8x4xf32> loc(#loc9)
    return %0 : tensor<2x8x4xf32> loc(#loc10)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc5 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc6 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc7 = loc("Invalid.function"(#loc5))
#loc8 = loc("invalid_module"(#loc6))
#loc9 = loc("jit(function)/ffi_call"(#loc7))
#loc10 = loc("jit(function)"(#loc8))

// -----

// expected-error {{[NCC_EVRF050] the contracting sizes differ: 8 in lhs}}
#loc1 = loc("operands[0]")
#loc2 = loc("operands[1]")
#loc3 = loc("operands[2]")
#loc4 = loc("operands[3]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x8x16xui32> loc("operands[0]"), %arg1: tensor<2x4x16xui32> loc("operands[1]"), %arg2: tensor<2x8x2xui8> loc("operands[2]"), %arg3: tensor<2x4x2xui8> loc("operands[3]")) -> (tensor<2x8x4xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @__op$block_scaled_dot(%arg0, %arg1, %arg2, %arg3) {api_version = 2 : i32, backend_config = "{\22scaled_dot_backend_config\22: {\22lhs_batch_dimensions\22: [0], \22rhs_batch_dimensions\22: [0], \22lhs_contracting_dimensions\22: [1], \22rhs_contracting_dimensions\22: [2], \22element_dtype\22: \22float8_e4m3fn\22}}", operand_layouts = [dense<[2, 1, 0]> : tensor<3xindex>, dense<[2, 1, 0]> : tensor<3xindex>, dense<[2, 1, 0]> : tensor<3xindex>, dense<[2, 1, 0]> : tensor<3xindex>], result_layouts = [dense<[2, 1, 0]> : tensor<3xindex>]} : (tensor<2x8x16xui32>, tensor<2x4x16xui32>, tensor<2x8x2xui8>, tensor<2x4x2xui8>) -> tensor<2x8x4xf32> loc(#loc9)
    return %0 : tensor<2x8x4xf32> loc(#loc10)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc5 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc6 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc7 = loc("Invalid.function"(#loc5))
#loc8 = loc("invalid_module"(#loc6))
#loc9 = loc("jit(function)/ffi_call"(#loc7))
#loc10 = loc("jit(function)"(#loc8))

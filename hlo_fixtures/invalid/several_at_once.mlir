// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --split-input-file --verify-diagnostics

// expected-error {{[NCC_EVRF036] backend_config key 'dim' is "1"}}
// expected-error {{[NCC_EVRF039] block_size is 64}}
// expected-error {{[NCC_EVRF040] scale_method is ''}}
// expected-error {{[NCC_EVRF041] the operand's element type is f32}}
// expected-error {{[NCC_EVRF042] dtype is missing}}
// expected-error {{[NCC_EVRF042] result 0, the data, has element type s8}}
// expected-error {{[NCC_EVRF057] the result has 1 parts}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xf32> loc("operands[0]")) -> (tensor<4x16xi8> {jax.result_info = "result"}) {
    %0 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22dim\22: \221\22, \22block_size\22: 64, \22scale_method\22: \22\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xf32>) -> tensor<4x16xi8> loc(#loc6)
    return %0 : tensor<4x16xi8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// RUN: mx-opt %s --passes=legalize-quantize-mx,legalize-scaled-matmul --split-input-file --verify-diagnostics

// expected-error {{[NCC_EVRF036] backend_config is missing}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config is not a JSON object: []}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "[]", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dim' has a value that never ends}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22dim\22: 1", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dim' is "1"}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: \221\22, \22dtype\22: \22float8_e4m3fn\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dim' is 1.5}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1.5, \22dtype\22: \22float8_e4m3fn\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'block_size' is true}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22block_size\22: true, \22dim\22: 1, \22dtype\22: \22float8_e4m3fn\22, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dtype' is 7}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22block_size\22: 32, \22dim\22: 1, \22dtype\22: 7, \22scale_method\22: \22EMAX\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dim' appears more than once}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22dim\22: 1, \22dim\22: 1, \22dtype\22: \22float8_e5m2\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dim' is NaN}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22dim\22: NaN, \22dtype\22: \22float8_e5m2\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dim' is 1e400}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22dim\22: 1e400, \22dtype\22: \22float8_e5m2\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

// -----

// expected-error {{[NCC_EVRF036] backend_config key 'dim' is 99999999999999999999}}
#loc1 = loc("operands[0]")
module @jit_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x64xbf16> loc("operands[0]")) -> (tensor<4x16xui32> {jax.result_info = "result[0]"}, tensor<4x2xui8> {jax.result_info = "result[1]"}) {
    %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {api_version = 2 : i32, backend_config = "{\22dim\22: 99999999999999999999, \22dtype\22: \22float8_e5m2\22}", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) loc(#loc6)
    return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8> loc(#loc7)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("hlo_fixtures/invalid.py":48:15 to :101)
#loc3 = loc("hlo_fixtures/generate.py":102:18 to :100)
#loc4 = loc("Invalid.function"(#loc2))
#loc5 = loc("invalid_module"(#loc3))
#loc6 = loc("jit(function)/ffi_call"(#loc4))
#loc7 = loc("jit(function)"(#loc5))

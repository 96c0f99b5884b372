"""One call, in every spelling in which compilers and frontends pass it around."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_fixtures.programs import Program, array

CONFIG_TEXT = '{"block_size": 32, "dim": -1, "dtype": "float8_e5m2", "scale_method": "EMAX"}'
RESULTS = (jax.ShapeDtypeStruct((4, 16), jnp.uint32), jax.ShapeDtypeStruct((4, 2), jnp.uint8))


def text_config(api_version: int) -> Callable[[jax.Array], Any]:
    """Returns the call with its configuration as JSON text, under an older api version."""

    def quantize(x: jax.Array) -> Any:
        return jax.ffi.ffi_call(
            "QuantizeMX", RESULTS, custom_call_api_version=api_version, legacy_backend_config=CONFIG_TEXT
        )(x)

    quantize.__doc__ = f"Two results and a JSON text configuration, api_version {api_version}."
    return quantize


def typed_ffi(x: jax.Array) -> Any:
    """The typed FFI: an api_version 4 dictionary of attributes."""
    return jax.ffi.ffi_call("QuantizeMX", RESULTS)(
        x, block_size=np.int64(32), dim=np.int64(-1), dtype="float8_e5m2", scale_method="EMAX"
    )


def composite(x: jax.Array) -> Any:
    """A composite of the name, with a fallback that nothing needs once the call is legalized."""

    def zeros(x: jax.Array, *, block_size: int, dim: int, dtype: str, scale_method: str) -> Any:
        return jnp.zeros((4, 16), jnp.uint32), jnp.zeros((4, 2), jnp.uint8)

    quantize = jax.lax.composite(zeros, name="jax_mx.QuantizeMX")
    return quantize(x, block_size=32, dim=-1, dtype="float8_e5m2", scale_method="EMAX")


_STABLEHLO = (
    "CHECK: %[[DIMS:.*]] = stablehlo.constant dense<[4, 64]> : tensor<2xi64>",
    "CHECK-NEXT: %[[DIM:.*]] = stablehlo.constant dense<1> : tensor<i64>",
    "CHECK-NEXT: %[[BLOCK:.*]] = stablehlo.constant dense<32> : tensor<i64>",
    "CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i64>",
    "CHECK-NEXT: %[[META:.*]] = stablehlo.tuple %[[DIMS]], %[[DIM]], %[[BLOCK]], %[[ZERO]]",
    'CHECK-NEXT: stablehlo.custom_call @QuantizeMX_bf16_e5m2(%[[META]], %arg0) {backend_config = ""',
    "CHECK-NOT: QuantizeMX(",
)
_HLO = (
    "CHECK: %[[META:.*]] = (s64[2]{0}, s64[], s64[], s64[]) constant(( {4, 64}, 1, 32, 0 ))",
    'CHECK: custom-call(%[[META]], %{{.*}}), custom_call_target="QuantizeMX_bf16_e5m2"',
    "CHECK-NOT: backend_config",
    "CHECK-NOT: api_version",
)


def _program(name: str, function: Callable[..., Any], form: str = "stablehlo") -> Program:
    return Program(
        name=name,
        function=function,
        arguments=(array(4, 64),),
        form=form,
        checks=_HLO if form == "hlo" else _STABLEHLO,
        directory="spellings",
    )


SPELLINGS = (
    _program("text_api_version_1", text_config(1)),
    _program("text_api_version_2", text_config(2)),
    _program("text_api_version_3", text_config(3)),
    _program("tuple_result", text_config(2), form="hlo"),
    _program("typed_ffi", typed_ffi),
    _program("typed_ffi_tuple_result", typed_ffi, form="hlo"),
    _program("composite", composite),
)

MHLO_DICTIONARY = """\
func.func @main(%arg0: tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) {
  %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {
    mhlo.backend_config = {block_size = 32 : i64, dim = -1 : i64, dtype = "float8_e5m2", scale_method = "EMAX"}
  } : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)
  return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8>
}
"""
"""The spelling that jax no longer makes; older exports have it."""

MHLO_CHECKS = _STABLEHLO

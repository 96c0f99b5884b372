"""MX calls inside XLA's own compilation: same bits as the inline implementation, and no trace afterwards."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_mx
from lowering import (
    LegalizeQuantizeMx,
    LegalizeScaledMatmul,
    LoweringError,
    enable_in_xla,
    execute,
    load_function,
    read_module,
    run_passes,
    start_in_xla,
    stop_in_xla,
)
from lowering.running import compare
from tests.lowering.test_legalize_scaled_matmul import BOTH
from tests.lowering.tools import stablehlo


def array(seed: int) -> jax.Array:
    bits = np.random.default_rng(seed).integers(0, 2**16, (64, 64)).astype(np.uint16)
    return jnp.asarray(bits.view(ml_dtypes.bfloat16))


def program(x: jax.Array) -> Any:
    """Calls next to fusions, on both axes, under a scan, and one used twice."""
    last = jax_mx.quantize_mx(x * 2, "float8_e4m3fn")
    first = jax_mx.quantize_mx(x, "float8_e5m2", axis=0, rule=jax_mx.NKI)

    def body(carry: jax.Array, _: None) -> tuple[jax.Array, Any]:
        return carry * 2, jax_mx.quantize_mx(carry, "float4_e2m1fn")

    _, scanned = jax.lax.scan(body, x, None, length=3)
    return last, first, scanned, last[0] + 1


def bytes_of(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_results_are_those_of_quantize_mx() -> None:
    x = array(1)
    expected = jax.jit(program)(x)
    with enable_in_xla() as hook, jax_mx.lowering_mode("custom_call"):
        found = jax.jit(program)(x)
    assert (hook.modules, hook.expanded, hook.failures) == (1, 3, [])
    assert compare(bytes_of(found), bytes_of(expected)) == []


def test_modules_from_files_run_legalized_or_not() -> None:
    x = np.asarray(array(2))[:8]
    module = read_module(BOTH)
    (expected,) = execute(module, [x])
    with enable_in_xla() as hook:
        (plain,) = load_function(module)(x)
        run_passes(module, [LegalizeQuantizeMx(), LegalizeScaledMatmul()])
        (legalized,) = load_function(module)(x)
    assert hook.expanded == 4
    assert compare([np.asarray(plain), np.asarray(legalized)], [expected, expected]) == []


def test_no_trace_is_left() -> None:
    cache_before = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    with enable_in_xla(), jax_mx.lowering_mode("custom_call"):
        jax.jit(lambda x: jax_mx.quantize_mx(x - 1))(array(3))
    assert jax.config.jax_enable_compilation_cache == cache_before  # type: ignore[attr-defined]
    with (
        jax_mx.lowering_mode("custom_call"),
        pytest.raises(jax.errors.JaxRuntimeError, match="QuantizeMX"),
    ):
        jax.jit(lambda x: jax_mx.quantize_mx(x - 2))(array(3))
    with pytest.raises(RuntimeError, match="call start_in_xla first"):
        stop_in_xla()


def test_a_block_that_compiles_nothing_is_an_error() -> None:
    with pytest.raises(LoweringError, match="XLA compiled nothing"), enable_in_xla():
        pass


def test_malformed_calls_are_explained() -> None:
    with pytest.raises(LoweringError, match="NCC_EVRF042"), enable_in_xla():
        load_function(read_module(stablehlo('{"dim":1}')))
    with pytest.raises(RuntimeError, match="call start_in_xla first"):
        stop_in_xla()


def test_the_users_exception_comes_through() -> None:
    with pytest.raises(ZeroDivisionError), enable_in_xla():
        raise ZeroDivisionError


def test_function_pair() -> None:
    hook = start_in_xla()
    try:
        with pytest.raises(RuntimeError, match="call stop_in_xla first"):
            start_in_xla()
        with jax_mx.lowering_mode("custom_call"):
            jax.jit(lambda x: jax_mx.quantize_mx(x - 3))(array(4))
    finally:
        assert stop_in_xla() is hook
    assert hook.expanded == 1


def test_other_layouts_are_refused() -> None:
    text = stablehlo(
        attributes=(
            "operand_layouts = [dense<[0, 1]> : tensor<2xindex>], "
            "result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]"
        )
    )
    with pytest.raises(LoweringError, match=r"layout \[0, 1\]"), enable_in_xla():
        load_function(read_module(text))

"""MX calls inside XLA's own compilation: same bits as the inline implementation, and no trace afterwards."""

import contextlib
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import NamedSharding, PartitionSpec

import jax_mx
from lowering import (
    LegalizeQuantizeMx,
    LegalizeScaledMatmul,
    LoweringError,
    _compat,
    enable_in_xla,
    execute,
    hlo_graft,
    load_function,
    read_module,
    run_passes,
    start_in_xla,
    stop_in_xla,
)
from lowering.module import Module
from lowering.running import argument_shapes, compare
from tests.collectives import compile_and_run, mesh, mode, put, random_bits
from tests.lowering.test_legalize_scaled_matmul import BOTH
from tests.lowering.tools import CONFIG_TEXT, hlo, quote, stablehlo


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


def opcodes(communicated: list[Any]) -> set[str]:
    return {opcode for opcode, _, _ in communicated}


def test_the_partitioners_all_to_all_next_to_a_call() -> None:
    x, on = random_bits(64, 256), mesh(8)

    def resharded(x: jax.Array) -> Any:
        return jax.lax.with_sharding_constraint(jax_mx.quantize_mx(x), NamedSharding(on, PartitionSpec(None, "d")))

    with mode("custom_call"):
        found, communicated = compile_and_run(resharded, put(x, on, "d", None))
    assert opcodes(communicated) == {"all-to-all"}
    assert compare(bytes_of(found), bytes_of(jax_mx.quantize_mx(x))) == []


def test_the_partitioners_all_to_all_next_to_a_product() -> None:
    on = mesh(8)
    numbers = np.random.default_rng(0)
    lhs, rhs = (jnp.asarray(numbers.integers(-4, 5, (8, n, 256)), jnp.bfloat16) for n in (16, 24))
    operands = (*jax_mx.quantize_mx(lhs), *jax_mx.quantize_mx(rhs))

    def product(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, dimension_numbers=(((2,), (2,)), ((0,), (0,))))

    specs = (((None, None, "d"),) * 2) + ((("d", None, None),) * 2)
    with mode("custom_call"):
        found, communicated = compile_and_run(
            product, *(put(x, on, *spec) for x, spec in zip(operands, specs, strict=True))
        )
    assert "all-to-all" in opcodes(communicated)
    assert compare(bytes_of(found), bytes_of(product(*operands))) == []


def test_the_partitioners_all_to_all_in_loops_and_branches() -> None:
    x, on = random_bits(64, 256), mesh(8)

    def nested(x: jax.Array) -> Any:
        def quantized(x: jax.Array) -> Any:
            return jax.lax.with_sharding_constraint(jax_mx.quantize_mx(x), NamedSharding(on, PartitionSpec(None, "d")))

        def step(carry: jax.Array, _: None) -> tuple[jax.Array, Any]:
            branches = (quantized, lambda x: jax_mx.quantize_mx(x, "float8_e5m2"))
            return carry, jax.lax.cond(carry[0, 0] == carry[0, 0], *branches, carry)

        return jax.lax.scan(step, x, None, length=2)[1], quantized(x)

    expected = jax.jit(nested)(x)
    with mode("custom_call"):
        found, communicated = compile_and_run(nested, put(x, on, "d", None))
    assert "all-to-all" in opcodes(communicated)
    assert compare(bytes_of(found), bytes_of(expected)) == []


def test_equal_metadata_is_read_from_the_broadcast_that_xla_makes_of_it() -> None:
    x = np.asarray(array(5))
    module = read_module(stablehlo(operand="64x64xbf16", data="64x16xui32", scale="64x2xui8"))
    expected = execute(module, [x])
    run_passes(module, [LegalizeQuantizeMx()])
    with enable_in_xla():
        found = load_function(module)(x)
    assert compare([np.asarray(f) for f in found], expected) == []


def test_malformed_calls_in_a_loop_are_located() -> None:
    def body(carry: jax.Array, _: None) -> tuple[jax.Array, Any]:
        results = (jax.ShapeDtypeStruct((64, 16), jnp.uint32), jax.ShapeDtypeStruct((64, 2), jnp.uint8))
        call = jax.ffi.ffi_call("QuantizeMX", results, custom_call_api_version=2, legacy_backend_config='{"dim":1}')
        return carry + 1, call(carry)

    with pytest.raises(LoweringError) as raised, enable_in_xla():
        jax.jit(lambda x: jax.lax.scan(body, x, None, length=3))(array(6))
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "NCC_EVRF042"
    assert diagnostic.instruction.startswith("ffi_call")
    assert diagnostic.location is not None
    assert diagnostic.location.file == __file__


def test_a_call_that_jaxlib_cannot_convert_is_said_to_be_in_xlas_module() -> None:
    text = hlo("no dictionary", extra=", api_version=API_VERSION_TYPED_FFI").replace("HloModule m", "HloModule jit_f")
    proto = _compat.parse_hlo_text(text).as_serialized_hlo_module_proto()
    with pytest.raises(LoweringError, match=r"MX007.* QuantizeMX in XLA's own module jit_f: .* quantized,"):
        hlo_graft.expand_in_proto(proto, lambda _: b"")


def test_many_calls_are_read_as_one_module_with_one_array() -> None:
    count = 300
    call = f'(u32[4,16], u8[4,2]) custom-call(x), custom_call_target="QuantizeMX", backend_config={quote(CONFIG_TEXT)}'
    calls = "".join(f"  q{n} = {call}\n" for n in range(count))
    text = f"HloModule m\nENTRY e {{\n  x = bf16[4,64] parameter(0)\n{calls}  ROOT y = bf16[4,64] copy(x)\n}}\n"
    read = []

    def reading(proto: bytes, name: str) -> Module:
        read.append(read_module(proto, name))
        return read[-1]

    expansion = _compat.parse_hlo_text("HloModule m\nENTRY e {\n  ROOT x = bf16[4,64] parameter(0)\n}\n")
    with mock.patch.object(hlo_graft, "read_module", reading):
        _, expanded = hlo_graft.expand_in_proto(
            _compat.parse_hlo_text(text).as_serialized_hlo_module_proto(),
            lambda _: bytes(expansion.as_serialized_hlo_module_proto()),
        )
    assert expanded == count
    (module,) = read
    assert len(module.operations_named("stablehlo.custom_call")) == count
    assert len(argument_shapes(module)) == 1


def equal_calls(x: jax.Array) -> Any:
    """The same operation several times: side by side, in both branches of a condition and in a loop."""
    either = jax.lax.cond(x[0, 0] > 0, jax_mx.quantize_mx, lambda x: jax_mx.quantize_mx(x * 2), x)

    def body(i: int, carry: Any) -> Any:
        return jax_mx.quantize_mx(x * jnp.bfloat16(3))

    return jax_mx.quantize_mx(x), jax_mx.quantize_mx(-x), either, jax.lax.fori_loop(0, 2, body, jax_mx.quantize_mx(x))


def test_equal_calls_each_have_an_expansion() -> None:
    x = array(9)
    expected = jax.jit(equal_calls)(x)
    with enable_in_xla() as hook, jax_mx.lowering_mode("custom_call"):
        found = jax.jit(lambda x: equal_calls(x))(x)
    assert hook.expanded == 5  # XLA computes what is asked twice once
    for a, b in zip(bytes_of(expected), bytes_of(found), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("as_pair", [False, True])
def test_the_persistent_compilation_cache_is_left_alone(tmp_path: Path, as_pair: bool) -> None:
    def compile_one(factor: float) -> None:
        jax.block_until_ready(jax.jit(lambda x: x * factor)(array(10)))

    options = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        compile_one(11)
        cached = set(tmp_path.iterdir())
        assert cached
        with contextlib.ExitStack() as stack:
            if as_pair:
                start_in_xla()
                stack.callback(stop_in_xla)
            else:
                stack.enter_context(enable_in_xla())
            with jax_mx.lowering_mode("custom_call"):
                jax.block_until_ready(jax.jit(lambda x: jax_mx.quantize_mx(x * 13))(array(10)))
        assert set(tmp_path.iterdir()) == cached
        compile_one(17)
        assert set(tmp_path.iterdir()) > cached
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()

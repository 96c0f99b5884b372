"""What `quantize_mx` is lowered to: the custom call for "neuron" or on demand, plain operations elsewhere."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.mlir import ir

import jax_mx
from tests import reference
from tests.arrays import RULES, assert_same

pytestmark = pytest.mark.usefixtures("plain_operations")

X = jax.random.normal(jax.random.key(0), (4, 64, 32), jnp.bfloat16)


@pytest.fixture
def plain_operations() -> Iterator[None]:
    """Calls of native kernels, which "auto" may mean on the CPU, are not what is tested here."""
    with jax_mx.config.use_implementation("xla"):
        yield


def quantize(x: jax.Array) -> Any:
    return jax_mx.quantize_mx(x)


@dataclasses.dataclass(frozen=True)
class Call:
    """A custom call of a lowered module, copied out of it."""

    target: str
    config: dict[str, Any]
    api_version: int
    scale_rule: str | None
    operands: tuple[str, ...]
    results: tuple[str, ...]


def custom_calls(lowered: Any) -> list[Call]:
    found = []

    def visit(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "stablehlo.custom_call":
            attributes = operation.attributes
            frontend = attributes.get("mhlo.frontend_attributes", None)
            call = Call(
                target=attributes["call_target_name"].value,
                config=json.loads(attributes["backend_config"].value),
                api_version=attributes["api_version"].value,
                scale_rule=frontend["mx_scale_rule"].value if frontend is not None else None,
                operands=tuple(str(operand.type) for operand in operation.operands),
                results=tuple(str(result.type) for result in operation.results),
            )
            found.append(call)
        return ir.WalkResult.ADVANCE

    module = lowered.compiler_ir("stablehlo")
    module.operation.walk(visit)
    return found


def for_neuron(f: Any, *args: Any) -> Any:
    return jax.jit(f).trace(*args).lower(lowering_platforms=("neuron",))


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("axis", [1, 2, -1, -2])
def test_neuron_gets_the_custom_call(fmt: str, axis: int) -> None:
    (call,) = custom_calls(for_neuron(lambda x: jax_mx.quantize_mx(x, fmt, axis=axis), X))
    assert call.target == "QuantizeMX"
    assert call.config == {"block_size": 32, "dim": axis % 3, "dtype": fmt, "scale_method": "EMAX"}
    assert call.api_version == 2
    assert call.scale_rule is None
    data = "x".join(str(n // 4 if i == axis % 3 else n) for i, n in enumerate(X.shape))
    scale = "x".join(str(n // 32 if i == axis % 3 else n) for i, n in enumerate(X.shape))
    container = "ui16" if fmt == "float4_e2m1fn" else "ui32"
    assert call.results == (f"tensor<{data}x{container}>", f"tensor<{scale}xui8>")


@pytest.mark.parametrize("rule", RULES)
def test_the_scale_rule_travels_as_a_frontend_attribute(rule: str) -> None:
    (call,) = custom_calls(for_neuron(lambda x: jax_mx.quantize_mx(x, rule=RULES[rule]), X))
    assert call.config["scale_method"] == "EMAX"
    assert call.scale_rule == (None if rule == "EMAX" else rule)


def test_a_rule_of_the_users_own_cannot_be_named_by_the_call() -> None:
    mine = jax_mx.ScaleRule("EMAX", headroom_8bit=1, headroom_4bit=0, min_scale=1)
    assert jax_mx.quantize_mx(X, rule=mine)[0].shape == (4, 64, 8)
    with pytest.raises(ValueError, match="rule: got EMAX, which the QuantizeMX call cannot name"):
        for_neuron(lambda x: jax_mx.quantize_mx(x, rule=mine), X)


def test_other_platforms_get_plain_operations() -> None:
    for platform in ("cpu", "cuda", "rocm", "tpu"):
        lowered = jax.jit(quantize).trace(X).lower(lowering_platforms=(platform,))
        assert custom_calls(lowered) == []


def test_an_axis_before_the_last_two_is_transposed_for_the_call() -> None:
    lowered = for_neuron(lambda x: jax_mx.quantize_mx(x, axis=0), jnp.zeros((32, 8, 4, 2), jnp.bfloat16))
    (call,) = custom_calls(lowered)
    assert call.config["dim"] == 3
    assert (call.operands[0], call.results[0]) == ("tensor<8x4x2x32xbf16>", "tensor<8x4x2x8xui32>")
    assert [str(out.shape) for out in jax.tree.leaves(lowered.out_info)] == ["(8, 8, 4, 2)", "(1, 8, 4, 2)"]


def test_vmap_reaches_the_call() -> None:
    (call,) = custom_calls(for_neuron(jax.vmap(quantize), X))
    assert call.config["dim"] == 2
    (call,) = custom_calls(for_neuron(jax.vmap(lambda x: jax_mx.quantize_mx(x, axis=0), in_axes=2), X))
    assert call.config["dim"] == 2  # [4, 64, 32] mapped over the last axis: axis 0 of 3 goes last


def test_modes_on_cpu_are_part_of_the_cache_key() -> None:
    f = jax.jit(quantize)
    assert custom_calls(f.lower(X)) == []
    with jax_mx.lowering_mode("custom_call"):
        assert [call.target for call in custom_calls(f.lower(X))] == ["QuantizeMX"]
        with jax_mx.lowering_mode("inline"):
            assert custom_calls(f.lower(X)) == []
            assert custom_calls(for_neuron(f, X)) == []
    assert custom_calls(f.lower(X)) == []


def test_a_function_that_ran_is_lowered_again_under_another_mode() -> None:
    f = jax.jit(quantize)
    f(X)
    with jax_mx.lowering_mode("custom_call"), pytest.raises(Exception, match="QuantizeMX"):
        f(X)  # no CPU has this call
    with jax_mx.lowering_mode("inline"):
        for got, want in zip(f(X), f(X), strict=True):
            assert_same(got, want, "result")


def test_the_call_carries_the_callers_line() -> None:
    with jax_mx.lowering_mode("custom_call"):
        text = jax.jit(quantize).lower(X).as_text(debug_info=True)
    frames = [line for line in text.splitlines() if "jax_mx/_" in line]
    assert "test_lowering_mode.py" in text
    assert frames == []


def test_export_for_neuron_round_trips() -> None:
    exported = jax.export.export(
        jax.jit(quantize), platforms=("neuron",), disabled_checks=jax_mx.EXPORT_DISABLED_CHECKS
    )(X)
    again = jax.export.deserialize(exported.serialize())
    assert "@QuantizeMX" in again.mlir_module()
    assert [str(aval) for aval in again.out_avals] == ["uint32[4,64,8]", "uint8[4,64,1]"]


def test_export_without_the_disabled_check_is_refused_by_jax() -> None:
    with pytest.raises(ValueError, match="QuantizeMX"):
        jax.export.export(jax.jit(quantize), platforms=("neuron",))(X)


def test_export_for_cpu_round_trips_and_runs() -> None:
    exported = jax.export.export(jax.jit(quantize), platforms=("cpu",))(X)
    got = jax.export.deserialize(exported.serialize()).call(X)
    for one, other in zip(got, jax_mx.quantize_mx(X), strict=True):
        assert_same(one, other, "result")


def test_export_for_both_chooses_by_platform() -> None:
    exported = jax.export.export(
        jax.jit(quantize), platforms=("cpu", "neuron"), disabled_checks=jax_mx.EXPORT_DISABLED_CHECKS
    )(X)
    again = jax.export.deserialize(exported.serialize())
    assert again.mlir_module().count("@QuantizeMX") == 1
    assert "stablehlo.case" in again.mlir_module()


def test_export_with_a_symbolic_batch() -> None:
    (batch,) = jax.export.symbolic_shape("b")
    spec = jax.ShapeDtypeStruct((batch, 64, 36), jnp.bfloat16)
    x = jnp.concatenate([X, X[..., :4]], axis=-1)
    for fmt in reference.FORMATS:
        data, scale = jax_mx.quantize_mx(x, fmt)
        exported = jax.export.export(jax.jit(lambda x, fmt=fmt: jax_mx.quantize_mx(x, fmt)))(spec)
        for one, other in zip(exported.call(x), (data, scale), strict=True):
            assert_same(one, other, "result")
        specs = [jax.ShapeDtypeStruct((batch, *a.shape[1:]), a.dtype) for a in (data, scale)]
        exported = jax.export.export(jax.jit(lambda d, s, fmt=fmt: jax_mx.dequantize_mx(d, s, fmt)))(*specs)
        want = np.asarray(jax_mx.dequantize_mx(data, scale, fmt)).view(np.uint32)
        assert_same(np.asarray(exported.call(data, scale)).view(np.uint32), want, "values")

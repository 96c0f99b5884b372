"""Modules with MX calls run on the CPU, before and after legalization, with the bits of `quantize_mx`."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_mx
from lowering import (
    Format,
    LegalizeQuantizeMx,
    LegalizeScaledMatmul,
    LoweringError,
    execute,
    expand_calls,
    load_function,
    read_module,
    run_passes,
    write_module,
)
from lowering.running import Difference, argument_shapes, compare, random_arguments
from lowering.validation import validate_module
from tests.lowering.test_legalize_scaled_matmul import BATCHED, config, dot
from tests.lowering.tools import CONFIG, FIXTURES, hlo, mx_opt, stablehlo


def hostile(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    bits = np.random.default_rng(seed).integers(0, 2**16, shape).astype(np.uint16)
    return bits.view(dtype)


def assert_same(results: list[np.ndarray[Any, Any]], expected: Any) -> None:
    assert compare(results, [np.asarray(e) for e in expected]) == []


@pytest.mark.parametrize("rule", [jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR], ids=lambda r: r.name)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_results_are_those_of_quantize_mx(rule: jax_mx.ScaleRule, dtype: str) -> None:
    text = stablehlo(
        json.dumps({**CONFIG, "dtype": dtype, "dim": 0}),
        operand="68x4xf16",
        data="17x4xui16" if dtype == "float4_e2m1fn" else "17x4xui32",
        scale="3x4xui8",
        attributes=f'mhlo.frontend_attributes = {{mx_scale_rule = "{rule.name}"}}',
    )
    x = hostile((68, 4), np.float16, seed=1)
    expected = jax_mx.quantize_mx(x, dtype, axis=0, rule=rule)
    module = read_module(text)
    assert_same(execute(module, [x]), expected)
    run_passes(module, [LegalizeQuantizeMx(allow_fp4=True)])
    for fmt in (Format.HLO_TEXT, Format.BYTECODE):
        assert_same(execute(read_module(write_module(module, fmt)), [x]), expected)


def test_e8m0_scales_have_the_same_bytes() -> None:
    x = hostile((4, 64), ml_dtypes.bfloat16, seed=2)
    data, scale = execute(read_module(stablehlo(scale="4x2xf8E8M0FNU")), [x])
    assert_same([data, scale.view(np.uint8)], jax_mx.quantize_mx(x))


@pytest.mark.parametrize("result", ["f32", "bf16"])
def test_scaled_matmul_is_dequantize_and_multiply(result: str) -> None:
    module = read_module(dot(config(**BATCHED, element_dtype="float8_e5m2"), f"2x8x4x{result}"))
    generator = np.random.default_rng(3)
    x, w = (generator.standard_normal((2, n, 64)).astype(ml_dtypes.bfloat16) for n in (8, 4))
    (a, s), (b, t) = jax_mx.quantize_mx(x, "float8_e5m2"), jax_mx.quantize_mx(w, "float8_e5m2")
    left, right = jax_mx.dequantize_mx(a, s, "float8_e5m2"), jax_mx.dequantize_mx(b, t, "float8_e5m2")
    expected = np.einsum("bmk,bnk->bmn", np.asarray(left, np.float64), np.asarray(right, np.float64))
    (found,) = execute(module, [np.asarray(v) for v in (a, b, s, t)])
    assert found.dtype == {"f32": np.float32, "bf16": ml_dtypes.bfloat16}[result]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2e-2 if result == "bf16" else 1e-5, atol=1e-4)


FAST_FIXTURES = sorted(
    p for p in [*(FIXTURES / "valid").iterdir(), *(FIXTURES / "spellings").iterdir()] if p.stat().st_size < 20_000
)


@pytest.mark.parametrize("path", FAST_FIXTURES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_fixture_computes_the_same_before_and_after(path: Path) -> None:
    outcome = validate_module(path.read_bytes(), path.name, seed=4, allow_fp4=True)
    assert (outcome.ok, outcome.verdict) == (True, "equal")
    assert outcome.results >= 1


def test_random_arguments_are_hostile_and_repeatable() -> None:
    module = read_module(stablehlo(operand="64x64xbf16", data="64x16xui32", scale="64x2xui8"))
    (first,), (again,), (other,) = (random_arguments(module, seed) for seed in (1, 1, 2))
    assert (first.view(np.uint16) == again.view(np.uint16)).all()
    assert (first.view(np.uint16) != other.view(np.uint16)).any()
    as_float = first.astype(np.float32)
    smallest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).smallest_normal)
    assert np.isnan(as_float).any()
    assert np.isposinf(as_float).any()
    assert np.isneginf(as_float).any()
    assert (first.view(np.uint16) == 0x8000).any()
    assert ((np.abs(as_float) > 0) & (np.abs(as_float) < smallest)).any()


def test_ordinary_arguments_are_finite() -> None:
    (found,) = random_arguments(read_module(stablehlo()), 1, hostile=False)
    assert np.isfinite(found.astype(np.float32)).all()
    assert len(np.unique(found.view(np.uint16))) > 100


def test_a_difference_fails_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation is not blind: a pass that tags the wrong format is caught."""
    monkeypatch.setattr(LegalizeQuantizeMx, "legalized_target", lambda self, call: "QuantizeMX_bf16_e5m2")
    outcome = validate_module(stablehlo().encode(), "m", seed=1, allow_fp4=False)
    assert not outcome.ok
    assert outcome.verdict.startswith("differs as stablehlo: result 0: ")


def test_differences_are_summarised() -> None:
    left = np.array([0.0, 1.0, np.nan], np.float32)
    right = np.array([-0.0, 1.0, np.nan], np.float32)
    assert compare([left], [left.copy()]) == []
    assert compare([left], [right]) == [Difference(index=0, count=1, first="(0,): 0.0 and -0.0")]
    assert compare([left], [left.astype(np.float64)])[0].count == -1
    assert compare([left], [])[0].first == "1 and 0 results"


def test_run_command(tmp_path: Path) -> None:
    module = tmp_path / "m.mlir"
    module.write_text(stablehlo())
    x = hostile((4, 64), ml_dtypes.bfloat16, seed=5)
    np.save(tmp_path / "x.npy", x)
    result = mx_opt("run", module, f"--input={tmp_path / 'x.npy'}", "-o", tmp_path / "out")
    assert (result.status, result.stderr) == (0, "")
    assert result.text.splitlines() == [
        f"result 0: uint32[4, 16] -> {tmp_path}/out/result_0.npy",
        f"result 1: uint8[4, 2] -> {tmp_path}/out/result_1.npy",
    ]
    saved = [np.load(tmp_path / "out" / f"result_{i}.npy") for i in range(2)]
    assert_same(saved, jax_mx.quantize_mx(x))
    seeded = mx_opt("run", module, "--seed=7")
    assert seeded.text.startswith("random inputs, seed 7\nresult 0: uint32[4, 16]\n")


def test_run_refuses_inputs_that_do_not_fit(tmp_path: Path) -> None:
    module = tmp_path / "m.mlir"
    module.write_text(stablehlo())
    good, bad, text = tmp_path / "good.npy", tmp_path / "bad.npy", tmp_path / "text.npy"
    np.save(good, np.zeros((4, 64), ml_dtypes.bfloat16))
    np.save(bad, np.zeros((4, 64), np.float32))
    text.write_text("no array")
    for files, cause in (
        ([good, good], "2 inputs are given - give 1: bf16[4,64]"),
        ([bad], "is float32[4, 64] - give an array that is bf16[4,64]"),
        ([text], "text.npy is no .npy file of numbers: "),
    ):
        result = mx_opt("run", module, *(f"--input={f}" for f in files))
        assert (result.status, result.stdout) == (1, b"")
        assert "[MX009]" in result.stderr
        assert cause in result.stderr
    result = mx_opt("run", module, f"--input={tmp_path / 'none.npy'}")
    assert (result.status, result.stdout) == (2, b"")
    assert result.stderr == f"mx-opt: cannot read {tmp_path / 'none.npy'}: No such file or directory\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (stablehlo(operand="4x64xf32"), "NCC_EVRF041"),
        (stablehlo(target="QuantizeMX_bf16_e5m2"), "MX007"),
        (stablehlo(target="SomethingElse"), "MX007"),
        ("func.func @f() { return }", "MX007"),
        ("func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }", "MX007"),
        (
            "func.func @main(%x: tensor<2147483648x4xbf16>) -> tensor<2147483648x4xbf16>"
            " { return %x : tensor<2147483648x4xbf16> }",
            "MX007",
        ),
    ],
)
def test_what_cannot_run_is_a_diagnostic(text: str, code: str) -> None:
    result = mx_opt("run", "-", stdin=text.encode())
    assert result.status == 1
    assert f"[{code}]" in result.stderr


def test_a_legalized_call_that_lies_about_its_results_is_refused() -> None:
    module = read_module(hlo())
    run_passes(module, [LegalizeQuantizeMx()])
    text = write_module(module, Format.HLO_TEXT).decode().replace("u8[4,2]", "u8[2,4]")
    with pytest.raises(LoweringError, match="it computes"):
        execute(read_module(text), [np.zeros((4, 64), ml_dtypes.bfloat16)])


def test_argument_shapes() -> None:
    (shape,) = argument_shapes(read_module(stablehlo()))
    assert str(shape) == "bf16[4,64]"
    assert isinstance(jax.device_put(random_arguments(read_module(stablehlo()), 0)[0]), jax.Array)
    assert jnp.bfloat16 == random_arguments(read_module(stablehlo()), 0)[0].dtype


def identity(element_type: str, dims: str = "2x") -> str:
    array = f"tensor<{dims}{element_type}>"
    return f"func.func @main(%x: {array}) -> {array} {{ return %x : {array} }}"


BF16 = np.zeros((4, 64), ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ([BF16.view(np.float16)], "argument 0 is float16[4, 64]"),
        ([BF16.view(np.int16)], "argument 0 is int16[4, 64]"),
        ([BF16.view(np.dtype("V2"))], "argument 0 is |V2[4, 64]"),
        ([BF16.T], "argument 0 is bfloat16[64, 4]"),
        ([np.zeros((2, 64), np.float32)], "argument 0 is float32[2, 64]"),
        ([jnp.zeros((4, 64), jnp.float16)], "argument 0 is float16[4, 64]"),
        ([BF16.tolist()], "argument 0 is a list"),
        ([BF16, BF16], "2 arguments are given - give 1: bf16[4,64]"),
        ([], "0 arguments are given - give 1: bf16[4,64]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: list[Any], cause: str) -> None:
    module = read_module(stablehlo())
    expanded = module.clone()
    expand_calls(expanded)
    function = load_function(expanded)
    for run in (lambda: execute(module, arguments), lambda: function(*arguments)):
        with pytest.raises(LoweringError) as caught:
            run()
        (found,) = caught.value.diagnostics
        assert found.code == "MX009"
        assert found.message.startswith(cause)
        assert "bf16[4,64]" in found.resolution


def test_the_argument_at_fault_is_named() -> None:
    text = "func.func @main(%x: tensor<2xf32>, %y: tensor<i8>) -> tensor<i8> { return %y : tensor<i8> }"
    function = load_function(read_module(text))
    (found,) = function(np.zeros(2, np.float32), np.int8(3))
    assert (found.dtype, found.shape, int(found)) == (np.int8, (), 3)
    for second in (np.uint8(3), np.zeros(1, np.int8), 3):
        with pytest.raises(LoweringError, match=r"argument 1 is .* - give an array that is s8\[\], of dtype int8"):
            function(np.zeros(2, np.float32), second)
    with pytest.raises(LoweringError, match=r"argument 0 is >f4\[2\] - give an array that is f32\[2\]"):
        function(np.zeros(2, ">f4"), np.int8(3))


@pytest.mark.parametrize(
    ("element_type", "dtype"),
    [
        ("i1", np.bool_),
        ("i2", ml_dtypes.int2),
        ("i4", ml_dtypes.int4),
        ("ui2", ml_dtypes.uint2),
        ("ui4", ml_dtypes.uint4),
        ("i64", np.int64),
        ("ui64", np.uint64),
        ("f64", np.float64),
        ("complex<f32>", np.complex64),
        ("complex<f64>", np.complex128),
        ("bf16", ml_dtypes.bfloat16),
        ("f4E2M1FN", ml_dtypes.float4_e2m1fn),
        ("f8E3M4", ml_dtypes.float8_e3m4),
        ("f8E4M3", ml_dtypes.float8_e4m3),
        ("f8E4M3FN", ml_dtypes.float8_e4m3fn),
        ("f8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
        ("f8E4M3B11FNUZ", ml_dtypes.float8_e4m3b11fnuz),
        ("f8E5M2", ml_dtypes.float8_e5m2),
        ("f8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
        ("f8E8M0FNU", ml_dtypes.float8_e8m0fnu),
    ],
)
def test_every_element_type_comes_through_as_itself(element_type: str, dtype: Any) -> None:
    given = np.array([1, 0.5 if element_type == "f8E8M0FNU" else 0]).astype(dtype)
    for array in (given, np.repeat(given, 2)[::2]):  # the second is not contiguous
        (found,) = execute(read_module(identity(element_type)), [array])
        assert_same([found], [given])


def test_load_function_says_what_to_do_about_mx_calls() -> None:
    module = read_module(stablehlo())
    legalized = read_module(stablehlo())
    run_passes(legalized, [LegalizeQuantizeMx()])
    for each, target in ((module, "QuantizeMX"), (legalized, "QuantizeMX_bf16_e4m3fn")):
        with pytest.raises(
            LoweringError, match=f"MX007.* has calls of {target}, .* call expand_calls .* enable_in_xla"
        ):
            load_function(each)
    expand_calls(module)
    assert_same([np.asarray(r) for r in load_function(module)(BF16)], jax_mx.quantize_mx(BF16))


@pytest.mark.parametrize("kind", ["i8", "f64"])
def test_scales_of_another_type_are_named(kind: str) -> None:
    text = dot(config(element_dtype="float8_e5m2")).replace("ui8", kind)
    module = read_module(text)
    with pytest.raises(LoweringError, match=r"MX007.*its scales are"):
        execute(module, random_arguments(module, 0))


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("dense<[4, 64]>", "dense<[9, 64]>", r"metadata says dims \(9, 64\) and its operand is bf16\[4,64\]"),
        ("QuantizeMX_bf16", "QuantizeMX_f16", "its target is QuantizeMX_f16_e4m3fn and its operand is bf16"),
    ],
)
def test_legalized_quantize_that_contradicts_its_operand(old: str, new: str, cause: str) -> None:
    module = read_module(stablehlo())
    run_passes(module, [LegalizeQuantizeMx()])
    wrong = read_module(str(module.mlir).replace(old, new))
    with pytest.raises(LoweringError, match=f"MX007.*{cause}"):
        execute(wrong, random_arguments(wrong, 0))


@pytest.mark.parametrize(
    ("old", "new"), [("ScaledMatmul_e5m2_e5m2", "ScaledMatmul_e4m3fn_e4m3fn"), ("dense<0>", "dense<1>")]
)
def test_legalized_matmul_that_contradicts_its_configuration(old: str, new: str) -> None:
    module = read_module(dot(config(**BATCHED, element_dtype="float8_e5m2"), "2x8x4xf32"))
    run_passes(module, [LegalizeScaledMatmul()])
    assert old in str(module.mlir)
    wrong = read_module(str(module.mlir).replace(old, new))
    with pytest.raises(LoweringError, match=r"MX007.*configuration"):
        execute(wrong, random_arguments(wrong, 0))


def test_functions_of_the_module_keep_their_names() -> None:
    function = "func.func private @mx_expansion_0_0() { return }\n"
    module = read_module(function + stablehlo())
    arguments = random_arguments(module, 0)
    assert compare(execute(module, arguments), execute(read_module(stablehlo()), arguments)) == []

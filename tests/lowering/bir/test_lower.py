"""Lowered programs give the bytes of the JAX primitive, for every shape, axis, dtype, rule and option."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_mx
from lowering.bir import BirLoweringError, LegalizedCall, LowerOptions, Module, lower_calls, simulate, verify
from lowering.bir.adversarial import adversarial_bits
from lowering.bir.wire import decode, encode, encode_module

RULES = {rule.name: rule for rule in (jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR)}
NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def assert_exact(call: LegalizedCall, options: LowerOptions | None = None, seed: int = 0) -> Module:
    """Lowers `call`, runs it on adversarial bits and compares data and scale with `jax_mx.quantize_mx`."""
    module = lower_calls([call], options)
    allow_fp4 = call.dtype == "float4_e2m1fn"
    assert verify(module, allow_fp4=allow_fp4) == []
    bits = adversarial_bits(call.shape, call.element_type, seed)
    found = simulate(module, {"x": bits}, allow_fp4=allow_fp4)
    value = bits.view(NUMPY[call.element_type])
    data, scale = jax_mx.quantize_mx(value, call.dtype, axis=call.axis, rule=RULES[call.scale_rule])
    for name, want in (("data", np.asarray(data)), ("scale", np.asarray(scale))):
        assert (found[name].shape, found[name].dtype) == (want.shape, want.dtype), name
        np.testing.assert_array_equal(found[name], want, err_msg=name)
    program = encode_module(module, module.functions[0], allow_fp4=allow_fp4)
    for start in range(0, len(program.words), 64):
        word = program.words[start : start + 64]
        assert encode(decode(word)) == word
    return module


SHAPES = [
    ((4,), -1),
    ((1, 4), -1),
    ((7, 36), -1),
    ((3, 512), -1),
    ((2, 3, 1300), 2),
    ((4, 1), -2),
    ((36, 5), 0),
    ((3, 132, 7), -2),
    ((2, 2, 388, 3), 2),
    ((1, 2048), -1),
    ((0, 32), -1),
    ((32, 0), -2),
    ((3, 0), -1),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_shapes(shape: tuple[int, ...], axis: int) -> None:
    assert_exact(LegalizedCall(shape, "bfloat16", "float8_e4m3fn", axis))


@pytest.mark.parametrize(
    ("source", "dtype", "rule"),
    list(itertools.product(("bfloat16", "float16"), ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"), RULES)),
)
def test_dtypes_and_rules(source: str, dtype: str, rule: str) -> None:
    assert_exact(LegalizedCall((16, 164), source, dtype, -1, rule), LowerOptions(columns_per_tile=5), seed=7)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((23, 644), -1), ((3, 644, 9), -2), ((5, 36, 11), -2), ((29, 516), -1)])
@pytest.mark.parametrize("columns", [1, 3, 4, 8])
def test_many_tiles(shape: tuple[int, ...], axis: int, columns: int, pack: bool) -> None:
    assert_exact(
        LegalizedCall(shape, "bfloat16", "float8_e5m2", axis), LowerOptions(columns_per_tile=columns, pack_scales=pack)
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 5), max_size=2),
    st.integers(1, 170),
    st.integers(1, 9),
    st.booleans(),
    st.integers(1, 12),
    st.booleans(),
)
def test_any_call(batch: list[int], rows: int, other: int, last: bool, columns: int, pack: bool) -> None:
    shape = (*batch, other, 4 * rows) if last else (*batch, 4 * rows, other)
    options = LowerOptions(columns_per_tile=columns, pack_scales=pack)
    assert_exact(LegalizedCall(shape, "bfloat16", "float8_e4m3fn", -1 if last else -2), options, seed=rows)


def test_the_budget_decides_the_tile_width() -> None:
    """bf16 to fp8, double-buffered, takes 2 * (8 + 4) bytes a column and one shared scale byte: 25.

    1300 bytes hold all 100 columns in a single tile, which needs no second buffer: 13 a column. 1299 bytes hold 51
    columns at 25, so 48 in whole words, so 3 tiles, evened out to 34, so 36. 850 bytes hold 34: 32, 4 tiles, 25, 28.
    """
    call = LegalizedCall((100, 512), "bfloat16", "float8_e4m3fn")
    for budget, columns in ((1300, 100), (1299, 36), (850, 28), (75, 3), (25, 1)):
        module = assert_exact(call, LowerOptions(sbuf_budget=budget))
        source = next(item for item in module.functions[0].allocations if item.tensor == "tile.src0")
        assert source.tensor_shape == (128, 4 * columns), budget


def test_one_tile_needs_one_buffer_of_each() -> None:
    """13 bytes a column suffice when nothing is double-buffered."""
    module = assert_exact(LegalizedCall((100, 512), "bfloat16", "float8_e4m3fn"), LowerOptions(sbuf_budget=1300))
    names = [item.tensor for item in module.functions[0].allocations]
    assert names == ["x", "data", "scale", "tile.src0", "tile.data0", "tile.scale0"]


def test_instructions_of_a_padded_double_buffered_call() -> None:
    """K = 36 has 9 rows and 2 scales; tiles of 2 columns. Loads run one tile ahead; each buffer is zeroed once."""
    module = assert_exact(LegalizedCall((6, 36), "bfloat16", "float8_e4m3fn"), LowerOptions(columns_per_tile=2))
    found = [
        (item.name, item.outs[0].memref, [f"{name}:{kind.name}" for name, kind in item.dependencies])  # type: ignore[union-attr]
        for item in module.functions[0].instructions()
    ]
    assert found == [
        ("Memset-0", "tile.src0", []),
        ("Load-0", "tile.src0", ["Memset-0:OUTPUT"]),
        ("Memset-1", "tile.src1", []),
        ("Load-1", "tile.src1", ["Memset-1:OUTPUT"]),
        ("QuantizeMX-0", "tile.data0", ["Memset-0:FLOW", "Load-0:FLOW"]),
        ("Save-0", "data", ["QuantizeMX-0:FLOW"]),
        ("Save-1", "scale", ["QuantizeMX-0:FLOW"]),
        ("Load-2", "tile.src0", ["QuantizeMX-0:ANTI"]),
        ("QuantizeMX-1", "tile.data1", ["Memset-1:FLOW", "Load-1:FLOW"]),
        ("Save-2", "data", ["QuantizeMX-1:FLOW"]),
        ("Save-3", "scale", ["QuantizeMX-1:FLOW"]),
        ("QuantizeMX-2", "tile.data0", ["Memset-0:FLOW", "Load-2:FLOW", "Save-0:ANTI"]),
        ("Save-4", "data", ["QuantizeMX-2:FLOW"]),
        ("Save-5", "scale", ["QuantizeMX-2:FLOW"]),
    ]


def test_pack_offsets_go_round() -> None:
    module = assert_exact(LegalizedCall((6, 512), "bfloat16", "float8_e4m3fn"), LowerOptions(columns_per_tile=1))
    scales = [item.outs[1] for item in module.functions[0].instructions() if item.opcode == "QuantizeMx"]
    # The buffer has one byte a partition, so the offset is the start partition; the span is 128 less the pack offset.
    assert [(scale.offset, scale.ap[0]) for scale in scales] == [  # type: ignore[union-attr]
        (0, (1, 128)),
        (4, (1, 124)),
        (8, (1, 120)),
        (12, (1, 116)),
        (0, (1, 128)),
        (4, (1, 124)),
    ]


def test_several_calls_make_several_functions() -> None:
    calls = [LegalizedCall((4, 32), "bfloat16", "float8_e4m3fn"), LegalizedCall((2, 64), "float16", "float8_e5m2")]
    module = lower_calls(calls)
    assert [function.name for function in module.functions] == ["sg0000", "sg0001"]
    bits = adversarial_bits((2, 64), "float16")
    data, _ = jax_mx.quantize_mx(bits.view(np.float16), "float8_e5m2")
    np.testing.assert_array_equal(simulate(module, {"x": bits}, function="sg0001")["data"], np.asarray(data))


GOOD = LegalizedCall((4, 64), "bfloat16", "float8_e4m3fn")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (LegalizedCall((), "bfloat16", "float8_e4m3fn"), "x: the shape is [], wanted rank 1 or more, sizes 0 or more"),
        (LegalizedCall((4,), "bfloat16", "float8_e4m3fn", 1), "x: the axis is 1, wanted -1 to 0"),
        (LegalizedCall((4, 6), "bfloat16", "float8_e4m3fn"), "x: axis 1 has 6 elements, wanted a multiple of 4"),
        (LegalizedCall((4,), "float32", "float8_e4m3fn"), "x: the element type is float32, wanted bfloat16 or float16"),
        (
            LegalizedCall((4,), "bfloat16", "int8"),
            "x: the dtype is int8, wanted float8_e4m3fn or float8_e5m2 or float4_e2m1fn",
        ),
        (
            LegalizedCall((4,), "bfloat16", "float8_e5m2", scale_rule="CEIL"),
            "the scale rule is CEIL; wanted EMAX, EMAX_ALT, NKI, OCP_FLOOR or jax_mx's rule of that name",
        ),
        (
            LegalizedCall((4,), "bfloat16", "float8_e5m2", operand="data"),
            "the names data, data and scale are not distinct",
        ),
    ],
)
def test_calls_that_cannot_be_lowered(call: LegalizedCall, message: str) -> None:
    with pytest.raises(BirLoweringError) as caught:
        lower_calls([call])
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            LowerOptions(sbuf_budget=51, columns_per_tile=8),
            "a tile of 4 columns wants 52 bytes per partition of SBUF for its buffers; 51 are available",
        ),
        (
            LowerOptions(columns_per_tile=0),
            "columns_per_tile is 0, wanted 1 to 16383: 4 elements a column, counted in u16",
        ),
        (
            LowerOptions(columns_per_tile=16384),
            "columns_per_tile is 16384, wanted 1 to 16383: 4 elements a column, counted in u16",
        ),
        (LowerOptions(target="core_v3"), "target is core_v3, wanted core_v4 (trn3): no other core has QuantizeMx"),
        (
            LowerOptions(sbuf_budget=300_000),
            "the SBUF budget is 300000 bytes per partition, wanted 1 to 245752, what core_v4 leaves to programs",
        ),
    ],
)
def test_options_that_cannot_be_met(options: LowerOptions, message: str) -> None:
    with pytest.raises(BirLoweringError) as caught:
        lower_calls([GOOD], options)
    assert str(caught.value) == message


def test_one_rule_for_a_module() -> None:
    calls = [GOOD, LegalizedCall((4, 64), "bfloat16", "float8_e4m3fn", scale_rule="NKI")]
    with pytest.raises(BirLoweringError) as caught:
        lower_calls(calls)
    assert str(caught.value) == "the calls ask for the scale rules EMAX, NKI; the rule is module-wide, wanted one"


def test_a_rule_other_than_emax_stands_in_the_module() -> None:
    assert lower_calls([GOOD]).attributes == {"neuron_core_id": 0}
    call = LegalizedCall((4, 64), "bfloat16", "float8_e4m3fn", scale_rule="NKI")
    assert lower_calls([call]).attributes == {"neuron_core_id": 0, "mx_scale_rule": "NKI"}

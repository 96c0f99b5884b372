"""Named corner cases with their expected bytes worked out by hand, on every axis and under eager, jit and vmap."""

# ruff: noqa: E501 - a table reads best a row a line

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from tests.arrays import RULES, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    fmt: str
    rule: str
    bits: tuple[int, ...]  # the first elements of the block; the rest are +0
    codes: tuple[int, ...]  # their codes; the rest are 0
    scale: int
    why: str
    source: str = "bfloat16"


E4, E5, F4 = "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"
ONE, INF, NAN = 0x3F80, 0x7F80, 0x7FC0  # bfloat16
NEG = 0x8000

CASES = [
    Case("all_zero", E4, "EMAX", (0,), (0,), 1, "0 - 8 is negative: 0, and 0 becomes 1"),
    Case("all_zero_nki", E4, "NKI", (0,), (0,), 0, "NKI's smallest scale byte is 0"),
    Case("minus_zero", E4, "EMAX", (NEG, 0, NEG), (0x80, 0, 0x80), 1, "zero keeps its sign"),
    Case("minus_zero_fp4", F4, "EMAX", (NEG, 0, NEG), (0x8, 0, 0x8), 1, "the sign bit of fp4 is bit 3"),
    Case(
        "subnormals_only", E4, "EMAX", (0x0001, 0x0040, 0x807F), (0x04, 0x30, 0xB8), 1,
        "times 2**126: 2**-133 is 2**-7, four quanta; 2**-127 is 2**-1; 127/128 rounds up to 1",
    ),
    Case(
        "subnormals_only_scale_0", E4, "OCP_FLOOR", (0x0001, 0x0040), (0x08, 0x38), 0,
        "times 2**127: 2**-6, the smallest normal, and 1",
    ),
    Case("one_nan", E4, "EMAX", (NAN, ONE, NEG | NAN), (0x00, 0x00, 0x80), 247, "NaN is a zero of its sign and drives m to 255"),
    Case("one_nan_e5m2", E5, "EMAX", (NEG | NAN, ONE), (0x80, 0x00), 240, "255 - 15"),
    Case(
        "one_nan_ocp", E4, "OCP_FLOOR", (NAN, ONE, NEG | NAN, NEG | ONE, INF), (0x7F, 0x00, 0xFF, 0x80, 0x00), 0xFF,
        "scale NaN; NaNs keep their sign; every other element is a zero of its sign",
    ),
    Case("one_nan_ocp_e5m2", E5, "OCP_FLOOR", (0x7F81, NEG | 0x7FFF), (0x7E, 0xFE), 0xFF, "any NaN becomes the canonical one"),
    Case("one_nan_ocp_fp4", F4, "OCP_FLOOR", (NEG | NAN, ONE), (0x8, 0x0), 0xFF, "fp4 has no NaN: a zero of its sign"),
    Case("both_infs", E4, "EMAX", (INF, NEG | INF, ONE), (0x7E, 0xFE, 0x00), 247, "Inf saturates; 1 x 2**-120 vanishes"),
    Case("both_infs_e5m2", E5, "EMAX", (INF, NEG | INF), (0x7B, 0xFB), 240, "saturated to 57344, not Inf"),
    Case("both_infs_fp4", F4, "EMAX", (INF, NEG | INF), (0x7, 0xF), 253, "saturated to 6"),
    Case(
        "zero_multiplier", F4, "EMAX_ALT", (INF, NEG | INF, 0x7F7F, NEG | ONE, NAN, NEG | NAN), (8, 8, 0, 8, 0, 8), 254,
        "scale 254 has the multiplier +0: Inf * 0 is the negative default NaN for either Inf, a NaN keeps its sign",
    ),
    Case("above_464", E4, "EMAX", (0x43E9,), (0x7E,), 127, "466 rounds to 480 where there is a 480; it saturates to 448"),
    Case("below_512", E4, "EMAX", (0x43FF, 0xC3FF), (0x7E, 0xFE), 127, "510 saturates, either sign"),
    Case("tie_to_448", E4, "EMAX", (0x43E8,), (0x7E,), 127, "464, the tie between 448 and 480, is 448 either way"),
    Case(
        "ties", E4, "EMAX", (0x4380, 0x3F88, 0x3F98, 0xBF88), (0x78, 0x38, 0x3A, 0xB8), 127,
        "256 leads; 1.0625 ties down to the even 1, 1.1875 ties up to the even 1.25",
    ),
    Case(
        "subnormal_ties", E4, "EMAX", (0x4380, 0x3A80, 0x3B40, 0x3A81), (0x78, 0x00, 0x02, 0x01), 127,
        "2**-10 is half the quantum 2**-9 and ties to 0; 3 * 2**-10 ties to 2 quanta; just above half is one quantum",
    ),
    Case(
        "subnormal_ties_e5m2", E5, "EMAX", (0x4700, 0x3700, 0x37C0, 0xB700), (0x78, 0x00, 0x02, 0x80), 127,
        "32768 leads; 2**-17 is half the quantum 2**-16 and ties to 0; 3 * 2**-17 ties to 2 quanta",
    ),
    Case(
        "fp4_grid", F4, "EMAX", (0x4080, 0x3E80, 0x3F40, 0x3FA0, 0x4020, 0x4060, 0x40A0), (6, 0, 2, 2, 4, 6, 6), 127,
        "4 leads; 0.25 to 0, 0.75 to 1, 1.25 to 1, 2.5 to 2, 3.5 to 4, 5 to 4: every tie goes to the even code",
    ),
    Case("fp4_saturates", F4, "EMAX", (0x40FF,), (0x7,), 127, "7.97 would round to 8; the largest is 6"),
    Case("f16_subnormal", E4, "EMAX", (0x0001,), (0x78,), 95, "2**-24 is a float32 normal, field 103, so s = 95", "float16"),
    Case("f16_max", E4, "NKI", (0x7BFF,), (0x78,), 135, "65504 / 256 is 255.9 and rounds to 256", "float16"),
    Case("f16_nan", E4, "EMAX", (0xFE00, 0x3C00), (0x80, 0x00), 247, "a float16 NaN widens to exponent field 255", "float16"),
    Case("f16_inf", E5, "NKI", (0xFC00,), (0xFB,), 241, "255 - 14", "float16"),
]  # fmt: skip

# One block whose largest element is the given one: scale byte and code of that element.
TABLE = [
    ("0", 0x0000, "bfloat16", (1, 0x00), (0, 0x00), (1, 0x00), (0, 0x00)),
    ("1.0", 0x3F80, "bfloat16", (119, 0x78), (120, 0x70), (112, 0x78), (113, 0x74)),
    ("1.75", 0x3FE0, "bfloat16", (119, 0x7E), (120, 0x76), (112, 0x7B), (113, 0x77)),
    ("1.875", 0x3FF0, "bfloat16", (119, 0x7E), (120, 0x77), (112, 0x7B), (113, 0x78)),
    ("448", 0x43E0, "bfloat16", (127, 0x7E), (128, 0x76), (120, 0x7B), (121, 0x77)),
    ("f16_max", 0x7BFF, "float16", (134, 0x7E), (135, 0x78), (127, 0x7B), (128, 0x78)),
    ("bf16_max", 0x7F7F, "bfloat16", (246, 0x7E), (247, 0x78), (239, 0x7B), (240, 0x78)),
]
for _value, _bits, _source, *_expected in TABLE:
    for (_fmt, _rule), (_scale, _code) in zip(
        [(E4, "EMAX"), (E4, "NKI"), (E5, "EMAX"), (E5, "NKI")], _expected, strict=True
    ):
        CASES.append(
            Case(f"largest_{_value}_{_fmt}_{_rule}", _fmt, _rule, (_bits,), (_code,), _scale, "table", _source)
        )


def eager(case: Case, axis: int) -> Callable[[Any], Any]:
    return lambda x: jax_mx.quantize_mx(x, case.fmt, axis=axis, rule=RULES[case.rule])


def jitted(case: Case, axis: int) -> Callable[[Any], Any]:
    return jax.jit(eager(case, axis))


def vmapped(case: Case, axis: int) -> Callable[[Any], Any]:
    """Maps over a neighbour of `axis`, and puts the results' mapped axis back where it was."""
    mapped = (axis + 1) % 3
    inner = axis - (mapped < axis)
    return jax.vmap(eager(case, inner), in_axes=mapped, out_axes=mapped)


@pytest.mark.parametrize("run", [eager, jitted, vmapped])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, axis: int, run: Callable[[Case, int], Callable[[Any], Any]]) -> None:
    block = np.zeros(32, np.uint16)
    block[: len(case.bits)] = case.bits
    codes = np.zeros(32, np.uint8)
    codes[: len(case.codes)] = case.codes
    blocks = np.stack([block, np.roll(block, 5)]).reshape(2, 1, 32)  # the second is the same block, elsewhere in it
    want = np.stack([codes, np.roll(codes, 5)]).reshape(2, 1, 32)

    data, scale = run(case, axis)(from_bits(np.moveaxis(blocks, -1, axis), case.source))

    assert_same(jax_mx.unpack_x4(data, case.fmt, axis), np.moveaxis(want, -1, axis), case.why)
    assert_same(np.moveaxis(np.asarray(scale), axis, -1), np.full((2, 1, 1), case.scale, np.uint8), case.why)


@pytest.mark.parametrize("run", [eager, jitted, vmapped])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_partial_last_block_has_its_own_scale(axis: int, run: Callable[[Case, int], Callable[[Any], Any]]) -> None:
    values = np.ones((2, 1, 36), np.float32)
    values[..., 32:] = 4.0
    case = Case("", E4, "EMAX", (), (), 0, "")
    data, scale = run(case, axis)(jnp.asarray(np.moveaxis(values, -1, axis), jnp.bfloat16))
    assert_same(jax_mx.unpack_x4(data, E4, axis), np.full(np.moveaxis(values, -1, axis).shape, 0x78, np.uint8), "codes")
    want = np.broadcast_to(np.array([119, 121], np.uint8), (2, 1, 2))
    assert_same(scale, np.moveaxis(want, -1, axis), "scales")


def test_the_first_element_is_in_the_lowest_bits() -> None:
    x = jnp.asarray([1.0, 1.125, 1.25, 1.375] * 8, jnp.bfloat16)
    data, _ = jax_mx.quantize_mx(x, E4)
    assert data[0] == 0x7B7A7978
    data, _ = jax_mx.quantize_mx(jnp.asarray([1.0, 1.5, 1.0, -1.0] * 8, jnp.bfloat16), F4)
    assert data[0] == 0xE676

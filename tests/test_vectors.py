"""Differential test against bytes that torchao printed.

torchao's FLOOR is `OCP_FLOOR`, and `EMAX` wherever no NaN is in the block, but for two things of torchao's own: a block
with scale byte 0 is multiplied by 2**126 instead of 2**127, and its NaN codes (e5m2 0x7F, fp4 arbitrary). torchao's
CEIL subtracts EMAX from the exponent rounded up: for a block whose largest magnitude is no power of two that is
EMAX - 1 from the exponent, which is `EMAX_ALT`.
"""

import pathlib

import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import RULES, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")

VECTORS = pathlib.Path(__file__).parent / "vectors"


def load(mode: str, fmt: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bits, codes and scale bytes of every category, one block a row."""
    with np.load(VECTORS / f"torchao_{mode}_{fmt}.npz") as file:
        names = sorted(name for name in file.files if name.endswith("_bits"))
        bits = np.concatenate([file[name] for name in names])
        codes = np.concatenate([file[name.replace("_bits", "_codes")] for name in names])
        scale = np.concatenate([file[name.replace("_bits", "_scale")] for name in names])
    return bits, codes, scale


def quantize(bits: np.ndarray, fmt: str, rule: str) -> tuple[np.ndarray, np.ndarray]:
    data, scale = jax_mx.quantize_mx(from_bits(bits, "bfloat16"), fmt, rule=RULES[rule])
    return np.asarray(jax_mx.unpack_x4(data, fmt)), np.asarray(scale)[:, 0]


def has_nan(bits: np.ndarray) -> np.ndarray:
    return ((bits & 0x7FFF) > 0x7F80).any(axis=1)


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("rule", ["EMAX", "OCP_FLOOR"])
def test_torchao_floor(fmt: str, rule: str) -> None:
    bits, codes, scale = load("floor", fmt)
    got_codes, got_scale = quantize(bits, fmt, rule)
    comparable = (scale >= 1) & ~has_nan(bits)
    assert comparable.sum() > 0.8 * len(bits)
    assert_same(got_codes[comparable], codes[comparable], "codes")
    assert_same(got_scale[comparable], scale[comparable], "scales")


@pytest.mark.parametrize("fmt", reference.FORMATS)
def test_torchao_floor_scales_agree_everywhere(fmt: str) -> None:
    bits, _, scale = load("floor", fmt)
    assert {0, 0xFF} <= set(scale.tolist())
    assert_same(quantize(bits, fmt, "OCP_FLOOR")[1], scale, "scales")


@pytest.mark.parametrize("fmt", reference.FORMATS)
def test_torchao_ceil_is_emax_alt_but_for_powers_of_two(fmt: str) -> None:
    bits, codes, scale = load("ceil", fmt)
    largest = (bits & 0x7FFF).max(axis=1)
    comparable = (largest & 0x7F != 0) & (largest < 0x7F80) & (scale >= 2)
    assert comparable.sum() > 0.6 * len(bits)
    got_codes, got_scale = quantize(bits[comparable], fmt, "EMAX_ALT")
    assert_same(got_codes, codes[comparable], "codes")
    assert_same(got_scale, scale[comparable], "scales")

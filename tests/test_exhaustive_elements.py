"""Proof of the element stage: every source bit pattern under every scale byte that can meet it, through the public API.

A block is a leader, which sets the scale, and 31 patterns whose exponents do not exceed the leader's. The reference is
scalar; it is asked once per distinct scaled value, and its answers are looked up for all pairs of pattern and scale.
"""

import functools

import jax
import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import COMBINATIONS, RULES, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
ROWS = -(-PATTERNS.size // 31)


@functools.cache
def fields(source: str) -> np.ndarray:
    """The float32 exponent field of every pattern."""
    return np.array([reference.float32_exponent_field(p, source) for p in PATTERNS.tolist()])


@functools.cache
def magnitudes(source: str) -> np.ndarray:
    """The value of every pattern without its sign, as a double; NaN where it is one."""
    return np.abs(np.array([reference.widen(p, source) for p in PATTERNS.tolist()]))


class Narrowing:
    """The reference's narrowing as a table, filled on demand: one entry a distinct double with at most 11 bits."""

    def __init__(self, fmt: str) -> None:
        self.fmt = fmt
        self.codes = np.full(1 << 22, 0xFF, np.uint8)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        bits = values.view(np.uint64)
        assert not np.any(bits & ((1 << 42) - 1)), "a scaled value has more than 11 significant bits"
        keys = bits >> 42
        for key in np.unique(keys[self.codes[keys] == 0xFF]).tolist():
            value = float(np.uint64(key << 42).view(np.float64))
            self.codes[key] = reference.narrow(value, self.fmt)
        return self.codes[keys]


narrowing = functools.cache(Narrowing)


def expected_codes(source: str, fmt: str, rule: str, scale: int) -> np.ndarray:
    """The reference's code of every pattern under one scale byte."""
    if scale >= 254:  # multiplier zero, or the NaN scale: few enough to ask one by one
        return np.array([reference.element(p, scale, source, fmt, rule) for p in PATTERNS.tolist()], np.uint8)
    nan = np.isnan(magnitudes(source))
    values = np.where(nan, 0.0, magnitudes(source)) * 2.0 ** (127 - scale)
    return narrowing(fmt)(values) | np.where(PATTERNS >= 0x8000, reference.FORMATS[fmt].sign_bit, 0).astype(np.uint8)


def leaders(source: str, fmt: str, rule: str) -> dict[int, int]:
    """For every scale byte the rule can produce, a pattern with the largest exponent that produces it."""
    by_scale: dict[int, int] = {}
    for pattern in np.flatnonzero(PATTERNS < 0x8000).tolist():
        scale = reference.scale([pattern], source, fmt, rule)
        best = by_scale.get(scale)
        if best is None or fields(source)[pattern] > fields(source)[best]:
            by_scale[scale] = pattern
    return by_scale


@pytest.mark.parametrize(("source", "fmt", "rule"), COMBINATIONS)
def test_every_pattern_under_every_scale(source: str, fmt: str, rule: str) -> None:
    quantize = jax.jit(lambda x: jax_mx.quantize_mx(x, fmt, rule=RULES[rule]))
    nan = np.isnan(magnitudes(source))
    seen = np.zeros(PATTERNS.size, bool)
    for scale, leader in leaders(source, fmt, rule).items():
        meets = fields(source) <= fields(source)[leader]
        if rule == "OCP_FLOOR" and scale != 0xFF:
            meets &= ~nan  # a NaN would turn the block's scale into 0xFF
        seen |= meets
        patterns = np.zeros(ROWS * 31, np.uint16)
        patterns[: PATTERNS.size][meets] = PATTERNS[meets]
        blocks = np.concatenate([np.full((ROWS, 1), leader, np.uint16), patterns.reshape(ROWS, 31)], axis=1)

        data, scales = quantize(from_bits(blocks, source))

        assert_same(scales, np.full((ROWS, 1), scale, np.uint8), f"scale of leader {leader:#x}")
        want = expected_codes(source, fmt, rule, scale)[blocks]
        assert_same(codes_of(np.asarray(data), fmt), want, f"codes under scale {scale}")
    assert seen.all(), "a pattern was never tried"


def codes_of(data: np.ndarray, fmt: str) -> np.ndarray:
    """One code a byte, by NumPy's own little-endian view."""
    if fmt != "float4_e2m1fn":
        return data.view(np.uint8)
    pairs = data.view(np.uint8)
    return np.stack([pairs & 0xF, pairs >> 4], axis=-1).reshape(len(data), -1)


def test_the_table_lookup_is_the_reference() -> None:
    """The lookup above and the reference's own element function agree wherever both are asked."""
    rng = np.random.default_rng(0)
    for source, fmt, rule in COMBINATIONS:
        for scale in rng.integers(1, 254, size=4).tolist():
            want = expected_codes(source, fmt, rule, scale)
            for pattern in rng.integers(0, 1 << 16, size=200).tolist():
                if not np.isinf(magnitudes(source)[pattern]):
                    assert reference.element(pattern, scale, source, fmt, rule) == want[pattern]

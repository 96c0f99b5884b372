"""Proof of the scale stage: every pair of exponents, the first of them at every position of the block."""

import jax
import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import COMBINATIONS, RULES, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")


def representatives(source: str) -> list[int]:
    """One positive pattern per float32 exponent field that the source can have, and a NaN beside the Inf."""
    by_field: dict[int, int] = {}
    for pattern in range(0x8000):
        by_field.setdefault(reference.float32_exponent_field(pattern, source), pattern)
    return [*by_field.values(), 0x7FC0 if source == "bfloat16" else 0x7E00]


@pytest.mark.parametrize(("source", "fmt", "rule"), COMBINATIONS)
def test_every_exponent_pair_at_every_position(source: str, fmt: str, rule: str) -> None:
    quantize_scale = jax.jit(lambda x: jax_mx.quantize_mx(x, fmt, rule=RULES[rule])[1])
    patterns = np.array(representatives(source), np.uint16)
    count = len(patterns)
    want = np.array(
        [[reference.scale([a, b], source, fmt, rule) for b in patterns.tolist()] for a in patterns.tolist()]
    )
    first, second = (index.ravel() for index in np.meshgrid(np.arange(count), np.arange(count), indexing="ij"))
    signs = (np.arange(count * count) % 2).astype(np.uint16) << 15  # a sign must not matter
    for position in range(32):
        other = (position + 1 + (first * 7 + second) % 31) % 32
        blocks = np.zeros((count * count, 32), np.uint16)
        blocks[np.arange(len(blocks)), other] = patterns[second]
        blocks[:, position] = patterns[first] | signs
        scales = quantize_scale(from_bits(blocks, source))
        assert_same(scales, want.astype(np.uint8).reshape(-1, 1), f"scales, position {position}")

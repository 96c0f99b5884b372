"""What a compiled `quantize_mx` holds besides its input and its output: nowhere near a float32 copy."""

import math

import jax
import pytest

import jax_mx
from tests import reference

SLACK = 1 << 16
"""Bytes for what does not grow with the array."""


def temporary_bytes(shape: tuple[int, ...], axis: int, fmt: str, source: str) -> int:
    function = jax.jit(lambda x: jax_mx.quantize_mx(x, fmt, axis=axis))
    return int(function.lower(jax.ShapeDtypeStruct(shape, source)).compile().memory_analysis().temp_size_in_bytes)


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("source", reference.SOURCES)
@pytest.mark.parametrize(("shape", "axis"), [((1024, 2048), 1), ((1024, 2048), 0), ((32, 64, 1024), 1)])
def test_whole_blocks(shape: tuple[int, ...], axis: int, fmt: str, source: str) -> None:
    """At most the codes before they are packed, one byte each, and 16 bits of largest magnitude a block."""
    elements = math.prod(shape)
    assert temporary_bytes(shape, axis, fmt, source) <= elements + 2 * (elements // 32) + SLACK


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize(("shape", "axis"), [((1024, 2044), 1), ((1020, 2048), 0)])
def test_partial_blocks(shape: tuple[int, ...], axis: int, fmt: str) -> None:
    """Besides those a padded copy in 16 bits."""
    padded = math.prod(length + -length % 32 if d == axis else length for d, length in enumerate(shape))
    allowed = 3 * padded + 2 * (padded // 32) + SLACK
    assert allowed < 4 * padded  # what float32 would take
    assert temporary_bytes(shape, axis, fmt, "bfloat16") <= allowed

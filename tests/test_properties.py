"""hypothesis: ranks 1 to 4, any axis, shape, source, format, rule and bits, against the scalar reference."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import RULES, assert_quantizes, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")


@st.composite
def arrays(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Bits of an array, and the axis to quantize: exponents are near each other, or anything at all."""
    rank = draw(st.integers(1, 4))
    axis = draw(st.integers(-rank, rank - 1))
    shape = [draw(st.integers(1, 3)) for _ in range(rank)]
    shape[axis] = 4 * draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    bits = rng.integers(0, 1 << 16, size=shape, dtype=np.uint16)
    center = draw(st.integers(0, 0x7FFF))
    width = draw(st.sampled_from([0, 1 << 4, 1 << 9, 1 << 11, 1 << 16]))
    low, high = max(0, center - width), min(0x7FFF, center + width)
    return (bits & 0x8000) | (low + bits % (high - low + 1)).astype(np.uint16), axis


SETTINGS = hypothesis.settings(max_examples=75, deadline=None, derandomize=True)


@SETTINGS
@hypothesis.given(
    arrays(), st.sampled_from(reference.SOURCES), st.sampled_from(list(reference.FORMATS)), st.sampled_from(list(RULES))
)
def test_quantize_is_the_reference(array: tuple[np.ndarray, int], source: str, fmt: str, rule: str) -> None:
    bits, axis = array
    assert_quantizes(bits, source, fmt, rule, axis)


@SETTINGS
@hypothesis.given(arrays(), st.sampled_from(reference.SOURCES), st.sampled_from(list(reference.FORMATS)))
def test_dequantize_is_the_reference(array: tuple[np.ndarray, int], source: str, fmt: str) -> None:
    bits, axis = array
    data, scale = jax_mx.quantize_mx(from_bits(bits, source), fmt, axis=axis, rule=jax_mx.OCP_FLOOR)
    values = np.asarray(jax_mx.dequantize_mx(data, scale, fmt, axis=axis))
    codes = np.moveaxis(np.asarray(jax_mx.unpack_x4(data, fmt, axis)), axis, -1)
    scales = np.moveaxis(np.asarray(scale), axis, -1)
    want = np.zeros(codes.shape, np.float32)
    with np.errstate(over="ignore"):  # beyond the range is Inf
        for index in np.ndindex(codes.shape):
            want[index] = reference.dequantize(int(codes[index]), int(scales[(*index[:-1], index[-1] // 32)]), fmt)
    got = np.moveaxis(values, axis, -1)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert_same(
        np.where(np.isnan(got), 0, got).view(np.uint32), np.where(np.isnan(want), 0, want).view(np.uint32), "values"
    )


@SETTINGS
@hypothesis.given(arrays(), st.data())
def test_vmap_is_the_unmapped_function(array: tuple[np.ndarray, int], data: st.DataObject) -> None:
    bits, axis = array
    hypothesis.assume(bits.ndim > 1)
    axis %= bits.ndim
    mapped = data.draw(st.sampled_from([i for i in range(bits.ndim) if i != axis]))
    x = from_bits(bits, "bfloat16")
    inner = axis - (mapped < axis)
    got = jax.vmap(lambda x: jax_mx.quantize_mx(x, axis=inner), in_axes=mapped, out_axes=mapped)(x)
    for one, other in zip(got, jax_mx.quantize_mx(x, axis=axis), strict=True):
        assert_same(one, other, "result")

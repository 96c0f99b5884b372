"""The native kernels against the XLA formulation: every instruction set, thread count, alignment and float mode."""

import shutil
import sysconfig

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from jax_mx._formats import FORMATS, ElementFormat
from jax_mx._native import library
from tests import native
from tests.arrays import RULES, assert_same

needs_library = pytest.mark.skipif(isinstance(library.load(), library.Unavailable), reason="no native kernels")
BITS = {2: np.uint16, 4: np.uint32}


def test_the_library_is_there_where_a_compiler_is() -> None:
    """Elsewhere the tests of native kernels are skipped, and say so."""
    compiler = (sysconfig.get_config_var("CXX") or "c++").split()[0]
    loaded = library.load()
    if shutil.which(compiler) is None:
        pytest.skip(f"no C++ compiler {compiler!r} on this machine")
    assert isinstance(loaded, library.Library), loaded.reason


@st.composite
def cases(draw: st.DrawFn) -> np.ndarray:
    """Bits of an [outer, length, inner] array: exponents near each other or anything, and rows or columns of zeros."""
    shape = (
        draw(st.integers(1, 5)),
        4 * draw(st.integers(1, 40)),
        draw(st.sampled_from([1, 1, 3, 16, 31, 33, 70, 600])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    center, width = draw(st.integers(0, 0x7FFF)), draw(st.sampled_from([0, 1 << 4, 1 << 9, 1 << 11, 1 << 16]))
    low, high = max(0, center - width), min(0x7FFF, center + width)
    bits = rng.integers(0, 1 << 16, size=shape, dtype=np.uint16)
    bits = (bits & 0x8000) | (low + bits % (high - low + 1)).astype(np.uint16)
    bits[rng.random(shape) < draw(st.sampled_from([0.0, 0.0, 0.3]))] = 0
    return bits


SETTINGS = hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
RUN = {"threads": st.integers(1, 5), "offset": st.integers(0, 7), "flush": st.booleans()}


@needs_library
@SETTINGS
@hypothesis.given(
    bits=cases(),
    source=st.sampled_from([0, 1]),
    fmt=st.sampled_from(FORMATS),
    rule=st.sampled_from(list(RULES)),
    **RUN,
)
def test_quantize(
    bits: np.ndarray, source: int, fmt: ElementFormat, rule: str, threads: int, offset: int, flush: bool
) -> None:
    x = native.new(bits.shape, native.FLOATS[source], offset)  # x may begin at any element, as a sub-view does
    x.view(np.uint16)[...] = bits
    with jax_mx.config.use_implementation("xla"):
        want = jax_mx.quantize_mx(jnp.asarray(x), fmt.name, axis=1, rule=RULES[rule])
    for isa in native.instruction_sets():
        got = native.quantize(x, fmt, RULES[rule], isa, threads, offset, flush)
        for one, other, what in zip(got, want, ("data", "scale"), strict=True):
            assert_same(one, other, f"{what}, {library.INSTRUCTION_SETS[isa]}")


@needs_library
@SETTINGS
@hypothesis.given(
    bits=cases(),
    fmt=st.sampled_from(FORMATS),
    out_dtype=st.sampled_from(native.FLOATS),
    usual=st.booleans(),
    **RUN,
)
def test_dequantize(
    bits: np.ndarray, fmt: ElementFormat, out_dtype: np.dtype, usual: bool, threads: int, offset: int, flush: bool
) -> None:
    shape = bits.shape
    rng = np.random.default_rng(int(bits.sum()))
    data = native.new((shape[0], shape[1] // 4, shape[2]), fmt.container_dtype, offset)
    data[...] = rng.integers(0, 1 << (8 * data.itemsize), size=data.shape)
    scale = native.new((shape[0], -(-shape[1] // 32), shape[2]), np.uint8, offset)
    scale[...] = rng.integers(100, 140, size=scale.shape) if usual else rng.integers(0, 256, size=scale.shape)
    with jax_mx.config.use_implementation("xla"):
        want = jax_mx.dequantize_mx(jnp.asarray(data), jnp.asarray(scale), fmt.name, axis=1, out_dtype=out_dtype)
    view = BITS[out_dtype.itemsize]
    for isa in native.instruction_sets():
        got = native.dequantize(data, scale, shape, fmt, out_dtype, isa, threads, offset, flush)
        assert_same(got.view(view), np.asarray(want).view(view), library.INSTRUCTION_SETS[isa])


@needs_library
@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize("fmt", FORMATS)
def test_every_pattern_in_every_instruction_set(fmt: ElementFormat, source: int) -> None:
    """All source patterns, grouped by exponent and not, along either kind of axis, where floats flush subnormals."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    mixed = np.random.default_rng(0).permutation(patterns)
    for bits in (patterns, mixed):
        for shape in ((1, 1 << 16, 1), (1, 256, 256)):
            x = bits.reshape(shape).view(native.FLOATS[source])
            with jax_mx.config.use_implementation("xla"):
                want = jax_mx.quantize_mx(jnp.asarray(x), fmt.name, axis=1, rule=jax_mx.OCP_FLOOR)
            for isa in native.instruction_sets():
                for one, other in zip(native.quantize(x, fmt, jax_mx.OCP_FLOOR, isa, 2, flush=True), want, strict=True):
                    assert_same(one, other, f"{library.INSTRUCTION_SETS[isa]} {shape}")


@needs_library
@pytest.mark.parametrize("isa", [0, 1, 2])
def test_an_instruction_set_is_refused_where_it_is_missing(isa: int) -> None:
    if isa in native.instruction_sets():
        x = np.ones((1, 32, 1), native.FLOATS[1])
        assert native.quantize(x, FORMATS[0], jax_mx.EMAX, isa, 1)[1].tolist() == [[[119]]]
    else:
        with pytest.raises(AssertionError):
            native.quantize(np.ones((1, 32, 1), native.FLOATS[1]), FORMATS[0], jax_mx.EMAX, isa, 1)


@needs_library
def test_large_arrays_run_on_the_thread_pool() -> None:
    """Enough work for many tasks: both axes, with sizes that leave partial blocks and strips."""
    x = jax.random.normal(jax.random.key(0), (1030, 4 * 257), jnp.bfloat16)
    for axis, y in ((1, x), (0, x.T)):
        results = []
        for name in ("xla", "native"):
            with jax_mx.config.use_implementation(name):
                data, scale = jax_mx.quantize_mx(y, axis=axis)
                values = jax_mx.dequantize_mx(data, scale, "float8_e4m3fn", axis=axis)
                results.append((data, scale, np.asarray(values).view(np.uint32)))
        for one, other in zip(*results, strict=True):
            assert_same(one, other, f"axis {axis}")

"""Arrays for tests: bit patterns in and out of jax, and the reference applied along an axis."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import jax_mx
from tests import reference

SOURCE_DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
RULES = {rule.name: rule for rule in (jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR)}
COMBINATIONS = list(itertools.product(reference.SOURCES, reference.FORMATS, reference.RULES))


def from_bits(bits: Any, source: str) -> jax.Array:
    """An array of `source` elements with these bits."""
    return jnp.asarray(np.asarray(bits, np.uint16).view(SOURCE_DTYPES[source]))


def expected(bits: np.ndarray, source: str, fmt: str, rule: str, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes (one a byte) and scale bytes of the reference, block by block along `axis`."""
    moved = np.moveaxis(bits, axis, -1)
    length = moved.shape[-1]
    codes = np.zeros(moved.shape, np.uint8)
    scales = np.zeros((*moved.shape[:-1], -(-length // 32)), np.uint8)
    for index in np.ndindex(moved.shape[:-1]):
        for block, start in enumerate(range(0, length, 32)):
            stop = min(start + 32, length)
            block_codes, scale = reference.quantize_block(moved[index][start:stop].tolist(), source, fmt, rule)
            codes[index][start:stop] = block_codes
            scales[index][block] = scale
    return np.moveaxis(codes, -1, axis), np.moveaxis(scales, -1, axis)


def assert_same(got: Any, want: Any, what: str) -> None:
    """Compares integer arrays; a failure counts the differences and shows the first ones."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), (
        f"{what}: {got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    )
    different = np.argwhere(got != want)
    rows = [f"  at {tuple(i.tolist())}: got {got[tuple(i)]:#x}, want {want[tuple(i)]:#x}" for i in different[:8]]
    assert not rows, "\n".join([f"{what}: {len(different)} of {got.size} differ", *rows])


def assert_quantizes(bits: np.ndarray, source: str, fmt: str, rule: str, axis: int, quantize: Any = None) -> None:
    """Checks `quantize_mx` of an array with these bits against the reference."""
    quantize = quantize or jax_mx.quantize_mx
    data, scale = quantize(from_bits(bits, source), fmt, axis=axis, rule=RULES[rule])
    codes, scales = expected(bits, source, fmt, rule, axis)
    assert_same(jax_mx.unpack_x4(data, fmt, axis), codes, f"{source} {fmt} {rule} axis {axis}: codes")
    assert_same(scale, scales, f"{source} {fmt} {rule} axis {axis}: scales")

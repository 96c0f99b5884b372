"""The tile view: an 8 x 4 block per scale, checked against the reference, and the two layouts' relation."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from jax_mx import tile
from tests import reference
from tests.arrays import RULES, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")

RNG = np.random.default_rng(0)


def random_bits(*shape: int) -> np.ndarray:
    return RNG.integers(0, 1 << 16, size=shape, dtype=np.uint16)


@pytest.mark.parametrize("source", reference.SOURCES)
@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("partitions", tile.PARTITIONS)
def test_every_block_of_8_by_4_is_one_block(source: str, fmt: str, rule: str, partitions: int) -> None:
    src = random_bits(partitions, 12)
    data, scale = tile.quantize_mx_tile(from_bits(src, source), fmt, rule=RULES[rule])
    codes = np.asarray(jax_mx.unpack_x4(data, fmt))
    assert (data.shape, scale.shape) == ((partitions, 3), (partitions // 8, 3))
    for row in range(partitions // 8):
        for column in range(3):
            block = np.s_[8 * row : 8 * row + 8, 4 * column : 4 * column + 4]
            want, want_scale = reference.quantize_block(src[block].ravel().tolist(), source, fmt, rule)
            assert_same(codes[block], np.array(want, np.uint8).reshape(8, 4), f"block {row}, {column}")
            assert scale[row, column] == want_scale


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_layout_is_the_stated_one(axis: int) -> None:
    shape = [3, 5, 2]
    shape[axis] = 128
    x = random_bits(*shape)
    laid = np.asarray(tile.from_logical(x, axis=axis))
    flat = np.moveaxis(x, axis, 0).reshape(128, -1)
    for k in range(128):
        for n in range(flat.shape[1]):
            assert laid[k // 4, 4 * n + k % 4] == flat[k, n]
    assert_same(tile.to_logical(laid, tuple(shape), axis=axis), x, "to_logical")


def test_both_views_hold_the_same_bytes() -> None:
    x = from_bits(random_bits(256, 6), "bfloat16")
    data, scale = jax_mx.quantize_mx(x, axis=0)
    tile_data, tile_scale = tile.quantize_mx_tile(tile.from_logical(x, axis=0))
    assert_same(tile_data, data, "data")
    assert_same(tile_scale, scale, "scale")


@pytest.mark.parametrize("scale_dtype", [jnp.uint8, jnp.float8_e8m0fnu])
@pytest.mark.parametrize("partitions", tile.PARTITIONS)
def test_physical_rows(partitions: int, scale_dtype: object) -> None:
    rows = partitions // 8
    scale = RNG.integers(1, 256, size=(rows, 5), dtype=np.uint8)
    typed = jnp.asarray(scale.view(jnp.dtype(scale_dtype)))
    for offset in tile.PACK_OFFSETS:
        physical = tile.scale_to_physical(typed, offset)
        assert physical.dtype == jnp.dtype(scale_dtype)
        got = np.asarray(physical).view(np.uint8)
        want = np.zeros((partitions, 5), np.uint8)
        for i in range(rows):
            want[(i & 3) + 32 * (i >> 2) + offset] = scale[i]
        assert_same(got, want, "physical rows")
        assert_same(np.asarray(tile.scale_from_physical(physical, offset)).view(np.uint8), scale, "logical rows")


def test_rows_of_a_full_tile_are_the_published_ones() -> None:
    physical = tile.scale_to_physical(jnp.full((16, 1), 7, jnp.uint8))
    rows = [0, 1, 2, 3, 32, 33, 34, 35, 64, 65, 66, 67, 96, 97, 98, 99]
    assert np.flatnonzero(np.asarray(physical)[:, 0]).tolist() == rows


def test_four_tiles_share_one_buffer() -> None:
    scales = [jnp.full((8, 2), value, jnp.uint8) for value in (1, 2, 3, 4)]
    buffer = jnp.full((64, 2), 99, jnp.uint8)
    for scale, offset in zip(scales, tile.PACK_OFFSETS, strict=True):
        buffer = tile.scale_to_physical(scale, offset, into=buffer)
    column = np.asarray(buffer)[:, 0]
    assert column[:32].tolist() == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [99] * 16
    assert column[:32].tolist() == column[32:].tolist()
    for scale, offset in zip(scales, tile.PACK_OFFSETS, strict=True):
        assert_same(tile.scale_from_physical(buffer, offset), scale, "scale")

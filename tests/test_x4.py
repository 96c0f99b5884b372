"""Containers: packing, unpacking, the lane permutation and the nibble parity."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import assert_same

RNG = np.random.default_rng(0)


def random_codes(fmt: str, *shape: int) -> np.ndarray:
    return RNG.integers(0, 16 if fmt == "float4_e2m1fn" else 256, size=shape, dtype=np.uint8)


def packed_by_hand(codes: np.ndarray, fmt: str) -> np.ndarray:
    """Containers along the last axis, by NumPy's little-endian view."""
    if fmt == "float4_e2m1fn":
        return np.ascontiguousarray(codes[..., 0::2] | (codes[..., 1::2] << 4)).view("<u2")
    return np.ascontiguousarray(codes).view("<u4")


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_packing_is_a_little_endian_view(fmt: str, axis: int) -> None:
    codes = random_codes(fmt, 8, 12, 16)
    want = np.moveaxis(packed_by_hand(np.moveaxis(codes, axis, -1), fmt), -1, axis)
    got = jax_mx.pack_x4(codes, fmt, axis)
    assert_same(got, want, "containers")
    assert_same(jax_mx.unpack_x4(got, fmt, axis), codes, "codes")


def test_the_low_nibble_counts() -> None:
    assert jax_mx.pack_x4(jnp.asarray([0xF1, 0xF2, 0xF3, 0xF4], jnp.uint8), "float4_e2m1fn")[0] == 0x4321


def lane(index: int, stride: int) -> int:
    """The simulator's permutation, as its formula states it."""
    if stride == 0:
        return index
    window = 2 * stride
    quotient, rest = divmod(index, window)
    return window * (quotient + 1) - rest - (2 if index % 2 == 0 else 0)


@pytest.mark.parametrize("stride", [0, 1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_lane_stride_and_parity(stride: int, parity: int, axis: int) -> None:
    codes = random_codes("float4_e2m1fn", 5, 24)
    nibbles = np.zeros((5, 24), np.uint8)  # by position: nibble n is bits 4 * (n % 4) of container n // 4
    for k in range(24):
        moved = lane(k, stride)
        nibbles[:, 2 * (moved >> 1) + ((moved & 1) ^ (1 - parity))] = codes[:, k]
    want = packed_by_hand(nibbles, "float4_e2m1fn")
    if axis == 0:
        codes, want = codes.T, want.T
    got = jax_mx.pack_x4(codes, "float4_e2m1fn", axis, lane_stride=stride, parity=parity)
    assert_same(got, want, "containers")
    assert_same(jax_mx.unpack_x4(got, "float4_e2m1fn", axis, lane_stride=stride, parity=parity), codes, "codes")


def test_strides_by_hand() -> None:
    codes = np.arange(1, 9, dtype=np.uint8)

    def packed(stride: int) -> list[int]:
        return [int(word) for word in jax_mx.pack_x4(codes, "float4_e2m1fn", lane_stride=stride)]

    assert packed(0) == packed(1) == [0x4321, 0x8765]
    assert packed(2) == [0x2143, 0x6587]  # the two bytes of each container swap
    assert packed(4) == [0x6587, 0x2143]  # the four bytes of a pair of containers reverse

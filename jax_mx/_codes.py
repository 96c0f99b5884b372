"""`pack_x4` and `unpack_x4`: containers as one code a byte, and back."""

import operator
from typing import Any

import jax
import jax.numpy as jnp

from jax_mx._check import check_array, check_axis, check_container_dtype, check_multiple_of_lanes
from jax_mx._compat import api_boundary
from jax_mx._formats import LANES, DTypeLike, ElementFormat, as_format
from jax_mx._integers import check_integer
from jax_mx._layout import pack_containers, permute_lanes, unpack_containers


@api_boundary
def pack_x4(codes: Any, dtype: DTypeLike, axis: int = -1, *, lane_stride: int = 0, parity: int = 1) -> jax.Array:
    """Packs element codes four to a container.

    Args:
        codes: uint8[..., K, ...], one code a byte; of 4-bit formats the low nibble counts.
        dtype: the element format.
        axis: the axis to pack along; K is a multiple of 4.
        lane_stride: 4-bit formats only: reverses the order of the bytes in every window of that many bytes, as the
            simulator's lane permutation does for that stride. 0, the default, is off.
        parity: 4-bit formats only: 1, the default, puts the odd code of a pair in the high nibble, 0 in the low one.

    Returns:
        uint32[..., K/4, ...], or uint16 for 4-bit formats.

    Raises:
        TypeError: `codes` is not uint8, `dtype` no element format, or another argument no integer.
        ValueError: K, `axis`, `lane_stride` or `parity` is out of its range.
    """
    fmt = as_format(dtype)
    codes = check_array("codes", codes, (jnp.dtype(jnp.uint8),))
    axis = check_axis(axis, codes.shape)
    check_multiple_of_lanes("codes", codes.shape, axis)
    lane_stride, parity = _check_lanes(fmt, codes.shape[axis], lane_stride, parity)
    if fmt.bits == 4:
        codes = codes & 0xF
    return pack_containers(permute_lanes(codes, axis, lane_stride, parity), fmt, axis)


@api_boundary
def unpack_x4(data: Any, dtype: DTypeLike, axis: int = -1, *, lane_stride: int = 0, parity: int = 1) -> jax.Array:
    """Unpacks containers to element codes: the inverse of `pack_x4` with the same arguments.

    Args:
        data: uint32[..., K/4, ...], or uint16 for 4-bit formats.
        dtype: the element format.
        axis: the packed axis.
        lane_stride: as for `pack_x4`.
        parity: as for `pack_x4`.

    Returns:
        uint8[..., K, ...], one code a byte.

    Raises:
        TypeError: `data` is not of the format's container dtype, `dtype` no element format, or another argument no
            integer.
        ValueError: `axis`, `lane_stride` or `parity` is out of its range.
    """
    fmt = as_format(dtype)
    data = check_container_dtype("data", data, fmt)
    axis = check_axis(axis, data.shape)
    lane_stride, parity = _check_lanes(fmt, data.shape[axis] * LANES, lane_stride, parity)
    return permute_lanes(unpack_containers(data, fmt, axis), axis, lane_stride, parity)


def _check_lanes(fmt: ElementFormat, length: int, lane_stride: Any, parity: Any) -> tuple[int, int]:
    parity = check_integer("parity", parity, (0, 1))
    try:
        stride = operator.index(lane_stride)
    except TypeError:
        raise TypeError(f"lane_stride: got {lane_stride!r}, want an integer") from None
    if stride < 0 or (stride > 0 and length % (2 * stride) != 0):
        raise ValueError(
            f"lane_stride: got {stride}, want 0 or a positive number of bytes whose windows, twice as many codes, "
            f"divide the {length} codes of the axis"
        )
    if fmt.bits != 4 and (stride != 0 or parity != 1):
        raise ValueError(
            f"lane_stride and parity: got {stride} and {parity} for {fmt.name}, want 0 and 1: "
            "only 4-bit codes share a byte"
        )
    return stride, parity

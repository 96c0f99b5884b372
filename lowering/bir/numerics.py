"""MX quantize of one tile in NumPy, written from the numerics contract and not from the JAX implementation.

Two independent programs that agree on every byte are the evidence that both are right, so nothing is shared with
`jax_mx`. All arithmetic is on float32 with its subnormals kept, and on integer bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowering.bir.dtypes import BF16, E2M1_X4, E4M3_X4, E5M2_X4, Dtype
from lowering.bir.errors import BirError

__all__ = ["SCALE_RULES", "ScaleRule", "quantize_tile"]

U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
F32 = NDArray[np.float32]

_BLOCK_ROWS = 8
_CHUNK = 1 << 15  # elements worked on at once: the temporaries then stay in the second-level cache


@dataclass(frozen=True)
class _Format:
    """An element format: `codes` are magnitudes, without the sign bit."""

    bits: int
    mantissa: int
    bias: int
    emax: int
    largest: int
    nan: int

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


_FORMATS: dict[Dtype, _Format] = {
    E4M3_X4: _Format(bits=8, mantissa=3, bias=7, emax=8, largest=0x7E, nan=0x7F),
    E5M2_X4: _Format(bits=8, mantissa=2, bias=15, emax=15, largest=0x7B, nan=0x7E),
    E2M1_X4: _Format(bits=4, mantissa=1, bias=1, emax=2, largest=0x7, nan=0x0),
}


@dataclass(frozen=True)
class ScaleRule:
    """How a block's scale byte follows from its largest exponent.

    Attributes:
        name: The rule's public name.
        fp8_offset: Taken from EMAX of the two fp8 formats before it is subtracted.
        fp4_offset: The same for fp4.
        smallest: Smallest scale byte.
        nan_scale: Whether a block that holds a NaN gets scale 0xFF and NaN codes.
    """

    name: str
    fp8_offset: int
    fp4_offset: int
    smallest: int
    nan_scale: bool


SCALE_RULES: dict[str, ScaleRule] = {
    rule.name: rule
    for rule in (
        ScaleRule("EMAX", 0, 0, 1, nan_scale=False),
        ScaleRule("EMAX_ALT", 1, 1, 1, nan_scale=False),
        ScaleRule("NKI", 1, 0, 0, nan_scale=False),
        ScaleRule("OCP_FLOOR", 0, 0, 0, nan_scale=True),
    )
}


def quantize_tile(source: U16, source_dtype: Dtype, data_dtype: Dtype, rule: ScaleRule) -> tuple[U8, U8]:
    """Quantizes one tile; a block is 8 consecutive partitions by 4 consecutive free elements.

    Args:
        source: uint16[P, F], the bits of bfloat16 or float16 values; P a multiple of 8, F of 4.
        source_dtype: Which of the two the bits are.
        data_dtype: The x4 dtype wanted.
        rule: The scale rule.

    Returns:
        The data bytes, uint8[P, F] for fp8 and uint8[P, F/2] for fp4, and the scales, uint8[P/8, F/4].

    Raises:
        BirError: The process runs with subnormals flushed to zero, which changes results.
    """
    _check_subnormals()
    fmt = _FORMATS[data_dtype]
    rows, free = source.shape
    groups = rows // _BLOCK_ROWS
    source = source.reshape(groups, _BLOCK_ROWS, free)
    codes = np.empty((groups, _BLOCK_ROWS, free), np.uint8)
    scale = np.empty((groups, free // 4), np.uint8)
    width = max(4, min(free, _CHUNK // _BLOCK_ROWS) & ~3)
    depth = max(1, _CHUNK // (_BLOCK_ROWS * width))
    # Inf times a zero multiplier and signalling NaNs are expected; their results are replaced below.
    with np.errstate(invalid="ignore"):
        for g in range(0, groups, depth):
            for f in range(0, free, width):
                part = np.s_[g : g + depth, :, f : f + width]
                found = _quantize_chunk(source[part], source_dtype is BF16, fmt, rule)
                codes[part], scale[g : g + depth, f // 4 : (f + width) // 4] = found
    flat = codes.reshape(rows, free)
    return (flat if fmt.bits == 8 else _pack_nibbles(flat)), scale


@dataclass(frozen=True)
class _Blocks:
    """What is known of some blocks whose largest exponents are those of NaN or Inf.

    Attributes:
        wide: Their elements, float32[g, 8, f].
        largest: Bits of the largest magnitude of each, uint16[g, f/4].
        scale: Their scales, int32[g, f/4].
        special: Which of them hold a NaN or an Inf, bool[g, f/4].
        nan_above: Bits of Inf in the source format; a NaN's are larger.
    """

    wide: F32
    largest: U16
    scale: NDArray[np.int32]
    special: NDArray[np.bool_]
    nan_above: int


def _quantize_chunk(source: U16, is_bf16: bool, fmt: _Format, rule: ScaleRule) -> tuple[U8, U8]:
    """Codes uint8[g, 8, f] and scales uint8[g, f/4] of source uint16[g, 8, f]."""
    largest = _block_max(source & np.uint16(0x7FFF))
    exponent = largest >> 7 if is_bf16 else (largest.view(np.float16).astype(np.float32).view(np.uint32) >> 23)
    emax = fmt.emax - (rule.fp8_offset if fmt.bits == 8 else rule.fp4_offset)
    scale = np.maximum(exponent.astype(np.int32) - emax, rule.smallest)
    multiplier = ((254 - scale).astype(np.uint32) << 23).view(np.float32)
    wide = _widen(source, is_bf16)
    scaled = wide * np.repeat(multiplier, 4, axis=1)[:, None, :]
    codes = _narrow(scaled, fmt)
    negative = source >> 15 != 0
    special = exponent == 255
    if special.any():
        blocks = _Blocks(wide, largest, scale, special, nan_above=0x7F80 if is_bf16 else 0x7C00)
        _fix_special(codes, negative, blocks, fmt, rule)
    codes |= negative.view(np.uint8) * np.uint8(fmt.sign)
    return codes, scale.astype(np.uint8)


def _block_max(magnitude: U16) -> U16:
    """uint16[g, f/4], the largest of each block of uint16[g, 8, f]; magnitudes order as their bits do."""
    column = magnitude.max(axis=1)
    pair = np.maximum(column[:, 0::2], column[:, 1::2])
    return np.maximum(pair[:, 0::2], pair[:, 1::2])


def _widen(source: U16, is_bf16: bool) -> F32:
    if is_bf16:
        return (source.astype(np.uint32) << 16).view(np.float32)
    return source.view(np.float16).astype(np.float32)


def _narrow(value: F32, fmt: _Format) -> U8:
    """Magnitude codes of |value|: to nearest, ties to even, saturating; a NaN gives any code."""
    shift = 23 - fmt.mantissa
    bits = value.view(np.uint32) & np.uint32(0x7FFFFFFF)
    # Adding 2^23 quanta leaves the number of quanta, rounded to even by the addition itself, in the low bits.
    anchor = np.float32(2.0 ** (23 + 1 - fmt.bias - fmt.mantissa))
    below = (bits.view(np.float32) + anchor).view(np.uint32) - anchor.view(np.uint32)
    rounded = bits >> np.uint32(shift)
    rounded &= np.uint32(1)
    rounded += bits
    rounded += np.uint32((1 << (shift - 1)) - 1)
    rounded >>= np.uint32(shift)
    rounded -= np.uint32((127 - fmt.bias) << fmt.mantissa)
    smallest_normal = np.uint32((128 - fmt.bias) << 23)
    codes = np.where(bits < smallest_normal, below, rounded)
    return np.minimum(codes, np.uint32(fmt.largest)).astype(np.uint8)


def _fix_special(codes: U8, negative: NDArray[np.bool_], blocks: _Blocks, fmt: _Format, rule: ScaleRule) -> None:
    """Sets what a NaN or an Inf does to its block: in place on `codes`, `negative` and the blocks' scales."""
    scale, nan = blocks.scale, np.isnan(blocks.wide)
    codes[nan] = 0
    # A scale of 254 has the multiplier +0.0, and Inf * 0 is the default NaN, whose sign bit is set.
    vanished = np.repeat(scale == 254, 4, axis=1)[:, None, :]
    default_nan = vanished & np.isinf(blocks.wide)
    codes[default_nan] = 0
    negative |= default_nan
    if rule.nan_scale:
        nan_block = blocks.special & (blocks.largest > blocks.nan_above)
        scale[nan_block] = 0xFF
        in_nan_block = np.broadcast_to(np.repeat(nan_block, 4, axis=1)[:, None, :], codes.shape)
        codes[in_nan_block] = 0
        codes[nan] = fmt.nan


def _pack_nibbles(codes: U8) -> U8:
    """uint8[P, F/2] of the 4-bit codes uint8[P, F]: the odd element of a pair in the high half."""
    packed: U8 = codes[:, 1::2] << np.uint8(4)
    packed |= codes[:, 0::2]
    return packed


def _check_subnormals() -> None:
    smallest = np.array([1], np.uint32).view(np.float32)
    if (smallest * np.float32(1.0))[0] == 0:
        raise BirError("this process flushes float32 subnormals to zero, which changes MX results; start a clean one")

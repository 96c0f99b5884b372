"""The simulator's own quantizer against the scalar reference, bit for bit."""

import itertools

import numpy as np
import pytest

from lowering.bir.adversarial import Bits, adversarial_bits
from lowering.bir.dtypes import dtype_named
from lowering.bir.numerics import SCALE_RULES, quantize_tile
from tests import reference

COMBINATIONS = list(itertools.product(reference.SOURCES, reference.FORMATS, reference.RULES))


def quantize(tile: Bits, source: str, fmt: str, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes, one a byte, and scales."""
    data, scale = quantize_tile(tile, dtype_named(source), dtype_named(f"{fmt}_x4"), SCALE_RULES[rule])
    if fmt == "float4_e2m1fn":
        data = np.stack([data & 0xF, data >> 4], axis=-1).reshape(tile.shape)
    return data, scale


def expected(tile: Bits, source: str, fmt: str, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """The reference on each 8 x 4 block; element k of a block is row k // 4, column k % 4."""
    codes, scale = np.zeros(tile.shape, np.uint8), np.zeros((tile.shape[0] // 8, tile.shape[1] // 4), np.uint8)
    for b, f in np.ndindex(scale.shape):
        block = np.s_[8 * b : 8 * b + 8, 4 * f : 4 * f + 4]
        found, scale[b, f] = reference.quantize_block(tile[block].ravel().tolist(), source, fmt, rule)
        codes[block] = np.reshape(found, (8, 4))
    return codes, scale


@pytest.mark.parametrize(("source", "fmt", "rule"), COMBINATIONS)
def test_adversarial_tiles(source: str, fmt: str, rule: str) -> None:
    tile = adversarial_bits((32, 64), source, seed=3)
    codes, scale = quantize(tile, source, fmt, rule)
    want_codes, want_scale = expected(tile, source, fmt, rule)
    np.testing.assert_array_equal(scale, want_scale)
    np.testing.assert_array_equal(codes, want_codes)


@pytest.mark.parametrize(("source", "fmt", "rule"), COMBINATIONS)
def test_every_element_as_the_largest_of_its_block(source: str, fmt: str, rule: str) -> None:
    """All 65536 patterns, each alone in a block of zeros: 8 blocks high, 8192 wide."""
    values = np.arange(1 << 16, dtype=np.uint16).reshape(8, 8192)
    tile = np.zeros((64, 4 * 8192), np.uint16)
    tile[::8, ::4] = values
    codes, scale = quantize(tile, source, fmt, rule)
    stride = 61  # a prime: the sample meets every exponent, sign and low bit
    for index in range(0, 1 << 16, stride):
        block = [index, *[0] * 31]
        want_codes, want_scale = reference.quantize_block(block, source, fmt, rule)
        row, column = divmod(index, 8192)
        got = codes[8 * row : 8 * row + 8, 4 * column : 4 * column + 4].ravel().tolist()
        assert (got, int(scale[row, column])) == (list(want_codes), want_scale), f"{index:#06x}"


@pytest.mark.parametrize(
    ("value", "fmt", "rule", "scale", "code"),
    [
        (0x3F80, "float8_e4m3fn", "EMAX", 119, 0x78),  # 1.0
        (0x3FE0, "float8_e4m3fn", "EMAX", 119, 0x7E),  # 1.75
        (0x3FF0, "float8_e4m3fn", "EMAX", 119, 0x7E),  # 1.875 saturates
        (0x3FF0, "float8_e4m3fn", "NKI", 120, 0x77),
        (0x43E0, "float8_e4m3fn", "EMAX", 127, 0x7E),  # 448
        (0x7F7F, "float8_e4m3fn", "EMAX", 246, 0x7E),  # bf16 max
        (0x3F80, "float8_e5m2", "EMAX", 112, 0x78),
        (0x3FE0, "float8_e5m2", "NKI", 113, 0x77),
        (0x7F7F, "float8_e5m2", "NKI", 240, 0x78),
        (0x0000, "float8_e5m2", "EMAX", 1, 0x00),
        (0x0000, "float8_e5m2", "NKI", 0, 0x00),
        (0x8000, "float8_e4m3fn", "EMAX", 1, 0x80),
        (0x7FC0, "float8_e4m3fn", "OCP_FLOOR", 255, 0x7F),
        (0xFFC0, "float8_e5m2", "OCP_FLOOR", 255, 0xFE),
        (0x7F80, "float4_e2m1fn", "EMAX_ALT", 254, 0x8),  # Inf times the zero multiplier
    ],
)
def test_published_values(value: int, fmt: str, rule: str, scale: int, code: int) -> None:
    tile = np.zeros((32, 4), np.uint16)
    tile[0, 0] = value
    codes, scales = quantize(tile, "bfloat16", fmt, rule)
    assert (int(scales[0, 0]), int(codes[0, 0])) == (scale, code)


def test_the_tile_may_exceed_a_chunk_in_both_directions() -> None:
    """Chunks are an inner matter: quantizing a large tile equals quantizing its parts."""
    tile = adversarial_bits((128, 9000), "bfloat16")
    codes, scale = quantize(tile, "bfloat16", "float8_e4m3fn", "EMAX")
    for rows, columns in itertools.product((np.s_[0:8], np.s_[40:48], np.s_[120:128]), (np.s_[0:64], np.s_[4060:4180])):
        part_codes, part_scale = quantize(
            np.ascontiguousarray(tile[rows, columns]), "bfloat16", "float8_e4m3fn", "EMAX"
        )
        np.testing.assert_array_equal(codes[rows, columns], part_codes)
        blocks = scale[rows.start // 8 : rows.stop // 8, columns.start // 4 : columns.stop // 4]
        np.testing.assert_array_equal(blocks, part_scale)

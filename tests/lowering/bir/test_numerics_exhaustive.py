"""The simulator's quantizer equals the JAX primitive on every element under every scale it can meet."""

import ml_dtypes
import numpy as np
import pytest

import jax_mx
from lowering.bir.dtypes import dtype_named
from lowering.bir.numerics import SCALE_RULES, quantize_tile

NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
MANTISSA = {"bfloat16": 7, "float16": 10}


@pytest.mark.parametrize("fmt", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
def test_every_element_under_every_scale(source: str, fmt: str) -> None:
    """For every exponent, blocks led by an element of that exponent that hold all 65536 patterns, 31 a block.

    An element larger than the leader raises its block's scale; then it is another leader's turn to show it small.
    """
    patterns = np.concatenate([np.arange(1 << 16), np.zeros(-(1 << 16) % 31)]).astype(np.uint16).reshape(-1, 31)
    count = len(patterns)
    for leader in range(0, 1 << 15, 1 << MANTISSA[source]):
        blocks = np.concatenate([np.full((count, 1), leader, np.uint16), patterns], axis=1)
        data, scale = jax_mx.quantize_mx(blocks.view(NUMPY[source]), fmt)
        # Block b is the columns 4 b to 4 b + 3 of a tile 8 partitions high.
        tile = np.ascontiguousarray(blocks.reshape(count, 8, 4).transpose(1, 0, 2).reshape(8, 4 * count))
        codes, scales = quantize_tile(tile, dtype_named(source), dtype_named(f"{fmt}_x4"), SCALE_RULES["EMAX"])
        np.testing.assert_array_equal(scales[0], np.asarray(scale)[:, 0], err_msg=f"{leader:#06x}")
        want = np.asarray(data)
        found = codes.view(want.dtype).T
        np.testing.assert_array_equal(found, want, err_msg=f"{leader:#06x}")

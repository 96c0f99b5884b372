"""Adversarial inputs: bit patterns that break quantizers which work on friendly numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bits", "adversarial_bits"]

Bits = NDArray[np.uint16]

_MANTISSA = {"bfloat16": 7, "float16": 10}


def adversarial_bits(shape: tuple[int, ...], source: str, seed: int = 0) -> Bits:
    """Random bits of `source`, the kind changing from place to place.

    A quarter each: every bit random, so that NaNs and Infs abound; one narrow band of exponents with random
    mantissas, so that blocks are full of ties and saturating values; subnormals and zeros of both signs; and the
    largest finite values.

    Args:
        shape: Shape of the result.
        source: "bfloat16" or "float16".
        seed: Equal seeds give equal bits.
    """
    random = np.random.default_rng(seed)
    mantissa = _MANTISSA[source]
    wild = random.integers(0, 1 << 16, shape, dtype=np.uint32)
    sign = random.integers(0, 2, shape, dtype=np.uint32) << 15
    fraction = random.integers(0, 1 << mantissa, shape, dtype=np.uint32)
    middle = 127 if source == "bfloat16" else 15
    band = sign | (random.integers(middle - 3, middle + 3, shape, dtype=np.uint32) << mantissa) | fraction
    tiny = sign | np.where(random.random(shape) < 0.5, fraction, 0)
    huge = sign | ((1 << 15) - (1 << mantissa) - 1 - random.integers(0, 3, shape, dtype=np.uint32))
    # Runs of 64 places share a kind, so that whole blocks of each occur along any axis of a large enough array.
    places = np.arange(int(np.prod(shape))).reshape(shape) // 64
    kind = np.random.default_rng(seed + 1).integers(0, 4, int(places.max(initial=0)) + 1)[places]
    return np.choose(kind, [wild, band, tiny, huge]).astype(np.uint16)

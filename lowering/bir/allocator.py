"""Places buffers in a partition of SBUF: first fit, aligned, within a budget.

SBUF buffers span partitions at one byte offset, so placing them is a one-dimensional problem: every buffer owns an
interval of bytes that no other live buffer shares, in all its partitions.
"""

from __future__ import annotations

from lowering.bir.errors import BirLoweringError
from lowering.bir.geometry import CORE_V4

__all__ = ["SbufAllocator"]


class SbufAllocator:
    """Hands out byte intervals of a partition and takes them back."""

    def __init__(self, budget: int) -> None:
        """Starts empty.

        Args:
            budget: Bytes per partition that may be used.

        Raises:
            BirLoweringError: `budget` is not between 1 and what the core offers.
        """
        if not 0 < budget <= CORE_V4.sbuf_usable:
            raise BirLoweringError(
                f"the SBUF budget is {budget} bytes per partition, wanted 1 to {CORE_V4.sbuf_usable}, "
                f"what {CORE_V4.arch} leaves to programs"
            )
        self._budget = budget
        self._live: dict[str, tuple[int, int]] = {}

    def allocate(self, name: str, size: int, alignment: int) -> int:
        """The first byte of a free interval of `size` bytes, a multiple of `alignment`.

        Raises:
            BirLoweringError: No interval is large enough, or `name` is live already.
        """
        if name in self._live:
            raise BirLoweringError(f"the buffer {name} is allocated already")
        start = 0
        for low, high in sorted(self._live.values()):
            if start + size <= low:
                break
            start = -(-high // alignment) * alignment
        if start + size > self._budget:
            raise BirLoweringError(
                f"the buffer {name} wants {size} bytes per partition of SBUF; "
                f"{max(0, self._budget - start)} of {self._budget} are available"
            )
        self._live[name] = (start, start + size)
        return start

    def release(self, name: str) -> None:
        """Frees the interval of `name`.

        Raises:
            BirLoweringError: `name` is not live.
        """
        if name not in self._live:
            raise BirLoweringError(f"the buffer {name} is not allocated")
        del self._live[name]

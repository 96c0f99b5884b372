"""Where large arrays get their memory: chosen, because else it is the luck of what was freed before.

glibc takes a large allocation from what was freed before when it fits and from the system when it does not. Memory from
the system is cleared page by page on first use, which can take longer than the work that is measured.
"""

import ctypes
import enum
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8  # options of glibc's mallopt
_LARGE = 1 << 20


class Memory(enum.StrEnum):
    """What a large result lies in."""

    FRESH = "fresh"
    """New from the system every time: what the first call of a program gets, and every call whose result is kept."""
    REUSED = "reused"
    """What an earlier result was freed from: what a loop gets once it runs."""


def use_memory(memory: Memory) -> None:
    """Makes every large array of this process lie in such memory, on glibc. Call it before any thread allocates."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if memory is Memory.FRESH:
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
    else:
        libc.mallopt(_M_ARENA_MAX, 1)  # the others hold no large arrays
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)

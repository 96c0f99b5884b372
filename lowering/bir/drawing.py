"""Draws a function where matplotlib is installed, and says so where it is not."""

from __future__ import annotations

import importlib

from lowering.bir.errors import BirError
from lowering.bir.program import Function

__all__ = ["draw_function"]


def draw_function(function: Function, suffix: str, *, limit: int = 40) -> bytes:
    """Draws where a function's buffers lie in SBUF and in which order its instructions can run.

    Args:
        function: A function of a module that `check` accepts.
        suffix: ".svg" or ".png".
        limit: Instructions shown in the timeline, from the first on; 1 or more.

    Returns:
        The picture, as the bytes of a file.

    Raises:
        BirError: `function` is no function, has nothing in SBUF, `suffix` or `limit` is none of the above, or
            matplotlib (the extra `draw`) is not installed.
    """
    if not isinstance(function, Function):
        raise BirError(f"function is a {type(function).__name__}, wanted a Function, such as module.functions[0]")
    if not isinstance(limit, int) or limit < 1:
        raise BirError(f"limit is {limit}, wanted a whole number from 1")
    try:
        draw = importlib.import_module("lowering.bir.draw")
    except ImportError as error:
        raise BirError(f"pictures need matplotlib, which is not here ({error}); install jax-mx[draw]") from error
    picture: bytes = draw.draw_function(function, suffix, limit=limit)
    return picture

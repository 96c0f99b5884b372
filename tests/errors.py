"""What every error for a bad argument must be like."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest


def assert_blames_the_caller(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    """Checks the error's type, how its text begins, and that the caller's own line is where the traceback ends."""
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.filename == call.__code__.co_filename, "the traceback ends inside the library"

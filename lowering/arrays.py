"""Reads one array of numbers from a `.npy` file, for every command that takes one."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


class ArrayFileError(ValueError):
    """A file is no `.npy` file of numbers; the text names it."""


def load_array(path: str | os.PathLike[str]) -> np.ndarray[Any, Any]:
    """Loads an array of booleans, integers or floats, or of raw bytes, as numpy stores bfloat16 and fp8.

    Raises:
        ArrayFileError: The file holds something else.
        OSError: It cannot be read.
    """
    path = Path(path)
    if path.stat().st_size == 0 and path.is_file():
        raise ArrayFileError(f"{path} is empty; give an array saved with numpy.save")
    try:
        with path.open("rb") as file:  # numpy leaves a file open that it cannot read
            array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OverflowError, zipfile.BadZipFile) as e:  # a pipe is a ValueError
        reason = " ".join(str(e).split())[:200] or type(e).__name__
        raise ArrayFileError(f"{path} is no .npy file of numbers: {reason}") from None
    if not isinstance(array, np.ndarray):
        raise ArrayFileError(f"{path} holds several arrays; give a .npy file of one")
    raw = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize in (1, 2)
    if array.dtype.kind not in "biuf" and not raw:
        raise ArrayFileError(f"{path} is no .npy file of numbers: its dtype is {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)

"""A safetensors file as memory-mapped arrays: opened by the real library, then read in place, part by part.

The library checks the file. Its numpy side has no 8-bit and 4-bit floats and no way to read bytes as they are, so the
bytes are mapped here, at the offsets that the header gives.
"""

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

try:
    import safetensors
except ImportError:  # an optional extra
    safetensors = None  # type: ignore[assignment,unused-ignore]

_LENGTH_BYTES = 8

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
"""Dtypes by their names in the file. A dtype that is not here can be copied but not read."""


class CheckpointError(ValueError):
    """A file is not what it should be; the text names the file and the tensor."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of a file.

    Attributes:
        name: its name.
        dtype: its dtype's name in the file.
        shape: its shape.
        start: its first byte's position in the file.
        nbytes: its size.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class _HeaderEntry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class SafetensorsFile:
    """An open file. Nothing is read before it is asked for.

    Attributes:
        path: where it is.
        entries: its tensors by name, in the file's order.
        metadata: its text metadata.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Opens a file.

        Raises:
            CheckpointError: it is no valid safetensors file.
            ImportError: the package safetensors is not installed.
            OSError: it cannot be read.
        """
        self.path = Path(path)
        if safetensors is None:
            raise ImportError("safetensors files need the package safetensors: pip install 'jax-mx[checkpoint]'")
        with self.path.open("rb"):
            pass  # for an OSError that names the file
        try:
            with safetensors.safe_open(str(self.path), "np") as file:
                self.metadata: dict[str, str] = dict(file.metadata() or {})
        except safetensors.SafetensorError as e:
            raise CheckpointError(f"{self.path}: not a valid safetensors file: {e}") from None
        self.entries = self._read_entries()

    def _read_entries(self) -> dict[str, Entry]:
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        decoded = {name: msgspec.json.decode(raw, type=_HeaderEntry) for name, raw in header.items()}
        base = _LENGTH_BYTES + length
        entries = {}
        for name, entry in sorted(decoded.items(), key=lambda item: item[1].data_offsets):
            start, stop = entry.data_offsets
            entries[name] = Entry(name, entry.dtype, entry.shape, base + start, stop - start)
        return entries

    def raw(self, name: str) -> np.ndarray[Any, Any]:
        """The bytes of a tensor, uint8[nbytes], mapped and read-only."""
        entry = self.entries[name]
        if entry.nbytes == 0:
            return np.zeros(0, np.uint8)
        mapped = np.memmap(self.path, np.uint8, "r", entry.start, (entry.nbytes,))
        return mapped.view(np.ndarray)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor, mapped and read-only.

        Raises:
            CheckpointError: its dtype is unknown here.
        """
        entry = self.entries[name]
        if entry.dtype not in DTYPES:
            raise CheckpointError(f"{self.path}: {name}: got dtype {entry.dtype}, want one of {', '.join(DTYPES)}")
        return self.raw(name).view(DTYPES[entry.dtype]).reshape(entry.shape)


def header_bytes(tensors: dict[str, tuple[str, tuple[int, ...], int]], metadata: dict[str, str]) -> bytes:
    """The header of a file whose tensors, by name (dtype, shape, bytes), follow each other in this order."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape, nbytes) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (at, at + nbytes)}
        at += nbytes
    encoded = msgspec.json.encode(header)
    padded = encoded + b" " * (-len(encoded) % _LENGTH_BYTES)
    return len(padded).to_bytes(_LENGTH_BYTES, "little") + padded


def nbytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of a known dtype."""
    return math.prod(shape) * DTYPES[dtype].itemsize

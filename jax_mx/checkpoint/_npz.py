"""`save_npz` and `load_npz`: named arrays and `MXArray`s in numpy's own format, with their metadata."""

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import msgspec
import numpy as np

from jax_mx._compat import api_boundary
from jax_mx._mx_array import MXArray
from jax_mx.checkpoint._atomic import replacing
from jax_mx.checkpoint._metadata import ArrayMetadata, describe, restore
from jax_mx.checkpoint._safetensors import CheckpointError

_HEADER = "__jax_mx__"


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """What the file says of its members: metadata of `MXArray`s, and dtypes that numpy has no name for."""

    version: int
    arrays: dict[str, ArrayMetadata]
    dtypes: dict[str, str]


@api_boundary
def save_npz(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Saves named arrays to one `.npz` file, which `numpy.load` can open too.

    An `MXArray` named `w` is stored as the members `w.data` and `w.scale`. Arrays of bfloat16 and other dtypes that
    numpy's format does not know are stored as unsigned integers of the same bits. The file appears when it is complete.

    Args:
        path: the file to write.
        arrays: arrays and `MXArray`s by name.

    Raises:
        TypeError: a value is no array.
        ValueError: two members would have the same name.
        OSError: the file cannot be written.
    """
    members: dict[str, np.ndarray[Any, Any]] = {}
    header = _Header(1, {}, {})

    def add(name: str, value: Any) -> None:
        if name in members or name == _HEADER:
            raise ValueError(f"arrays: got two members named {name!r}, want names that differ")
        members[name] = value

    for name, value in arrays.items():
        if isinstance(value, MXArray):
            header.arrays[name] = describe(value)
            add(f"{name}.data", np.asarray(value.data))
            add(f"{name}.scale", np.asarray(value.scale))
            continue
        if not isinstance(value, jax.Array | np.ndarray | np.generic):
            raise TypeError(f"arrays: got {type(value).__name__} for {name!r}, want an array or an MXArray")
        array = np.asarray(value)
        if array.dtype.kind == "O":
            raise TypeError(f"arrays: got an array of Python objects for {name!r}, want numbers")
        if array.dtype.isbuiltin != 1:
            header.dtypes[name] = array.dtype.name
            array = np.atleast_1d(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
        add(name, array)
    encoded = np.frombuffer(msgspec.json.encode(header), np.uint8)
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_HEADER: encoded}, **members)


@api_boundary
def load_npz(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Loads what `save_npz` saved.

    Args:
        path: the file.

    Returns:
        numpy arrays and `MXArray`s by name.

    Raises:
        CheckpointError: the file is not one that `save_npz` wrote.
        OSError: it cannot be read.
    """
    content = io.BytesIO(Path(path).read_bytes())
    try:
        with np.load(content, allow_pickle=False) as file:
            members = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as e:
        raise CheckpointError(f"{path}: not a valid npz file: {e}") from None
    encoded = members.pop(_HEADER, None)
    if encoded is None:
        raise CheckpointError(f"{path}: got no member {_HEADER}, want a file that save_npz wrote")
    try:
        header = msgspec.json.decode(encoded.tobytes(), type=_Header)
        loaded: dict[str, Any] = {
            name: restore(members.pop(f"{name}.data"), members.pop(f"{name}.scale"), metadata)
            for name, metadata in header.arrays.items()
        }
        for name, dtype in header.dtypes.items():
            loaded[name] = members.pop(name).view(getattr(ml_dtypes, dtype))
    except (msgspec.DecodeError, KeyError, AttributeError, TypeError, ValueError) as e:
        raise CheckpointError(f"{path}: its members are not what its header says: {e}") from None
    return loaded | members

"""`save_npz` and `load_npz`: named arrays and `MXArray`s in numpy's own format, with their metadata."""

import io
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import msgspec
import numpy as np

from jax_mx._atomic import replacing
from jax_mx._compat import api_boundary
from jax_mx._mx_array import MXArray
from jax_mx.checkpoint._metadata import VERSION, ArrayMetadata, check_version, describe, restore
from jax_mx.checkpoint._safetensors import CheckpointError

_HEADER = "__jax_mx__"
_SUFFIX = ".npy"
"""What numpy adds to a member's name, and takes off again."""

_NUMBERS = "biufc"
"""Kinds of numpy's own numbers, which its format stores in either byte order."""

_DAMAGE = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What the modules that read a file raise when it is cut short, changed or of another kind."""


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
        arrays: arrays of numbers or booleans and `MXArray`s by name.

    Raises:
        TypeError: `arrays` is no mapping from strings, or a value is no array of numbers or booleans.
        ValueError: two members would have the same name, or a name cannot be one of a member.
        OSError: the file cannot be written.
    """
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays: got {type(arrays).__name__}, want a mapping from names to arrays")
    path = Path(path)
    members: dict[str, np.ndarray[Any, Any]] = {}
    header = _Header(VERSION, {}, {})

    def add(name: str, array: np.ndarray[Any, Any]) -> None:
        if name in members or name == _HEADER:
            raise ValueError(f"arrays: got two members named {name!r}, want names that differ")
        members[name] = array

    for name, value in arrays.items():
        _check_name(name)
        if isinstance(value, MXArray):
            header.arrays[name] = describe(value)
            add(f"{name}.data", np.asarray(value.data))
            add(f"{name}.scale", np.asarray(value.scale))
            continue
        array = _as_numbers(name, value)
        if _is_ml_dtype(array.dtype):
            header.dtypes[name] = array.dtype.name
            array = np.atleast_1d(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
        add(name, array)
    members = {_HEADER: np.frombuffer(msgspec.json.encode(header), np.uint8), **members}
    for name in members:
        if name + _SUFFIX in members:  # asked for one of them, numpy could give the other
            raise ValueError(
                f"arrays: got members named {name!r} and {name + _SUFFIX!r}, want names that differ in more than "
                f"{_SUFFIX}, which is added to each"
            )
    # Not numpy.savez, whose own parameters are names that no array could have.
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in members.items():
            with archive.open(name + _SUFFIX, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"arrays: got {name!r} as a name, want strings")
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise ValueError(f"arrays: got {name!r} as a name, want one of Unicode text without NUL characters")


def _as_numbers(name: str, value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        raise TypeError(f"arrays: got {type(value).__name__} for {name!r}, want an array or an MXArray")
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.extended):
        raise TypeError(
            f"arrays: got dtype {value.dtype} for {name!r}, want numbers or booleans; jax.random.key_data gives a "
            "key's numbers"
        )
    array = np.asarray(value)
    if array.dtype.kind == "O":
        raise TypeError(f"arrays: got an array of Python objects for {name!r}, want numbers or booleans")
    if array.dtype.kind not in _NUMBERS and not _is_ml_dtype(array.dtype):
        raise TypeError(f"arrays: got dtype {array.dtype} for {name!r}, want numbers or booleans")
    return array


def _is_ml_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of the narrow numbers of ml_dtypes, which `load_npz` finds there by name."""
    found = getattr(ml_dtypes, dtype.name, None)
    return isinstance(found, type) and issubclass(found, np.generic) and np.dtype(found) == dtype


@api_boundary
def load_npz(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Loads what `save_npz` saved.

    Args:
        path: the file.

    Returns:
        numpy arrays and `MXArray`s by name.

    Raises:
        CheckpointError: the file is not one that `save_npz` wrote, or a newer version of it did.
        OSError: it cannot be read.
    """
    content = io.BytesIO(Path(path).read_bytes())  # past this line an OSError could only be damage
    try:
        with zipfile.ZipFile(content) as archive:
            members = {name.removesuffix(_SUFFIX): _read(archive, name) for name in archive.namelist()}
    except _DAMAGE as e:
        raise CheckpointError(f"{path}: not a valid npz file: {e}") from None
    encoded = members.pop(_HEADER, None)
    if encoded is None:
        raise CheckpointError(f"{path}: got no member {_HEADER}, want a file that save_npz wrote")
    try:
        check_version(encoded.tobytes(), path)
        header = msgspec.json.decode(encoded.tobytes(), type=_Header)
        loaded: dict[str, Any] = {
            name: restore(members.pop(f"{name}.data"), members.pop(f"{name}.scale"), metadata)
            for name, metadata in header.arrays.items()
        }
        for name, dtype in header.dtypes.items():
            loaded[name] = members.pop(name).view(getattr(ml_dtypes, dtype))
    except CheckpointError:
        raise
    except (msgspec.DecodeError, KeyError, AttributeError, TypeError, ValueError) as e:
        raise CheckpointError(f"{path}: its members are not what its header says: {e}") from None
    return loaded | members


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, Any]:
    with archive.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)

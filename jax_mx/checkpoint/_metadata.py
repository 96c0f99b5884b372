"""What a stored `MXArray` must say besides its bytes, as JSON: format, axis, logical dtype and scale rule."""

import dataclasses
from typing import Any

import msgspec

from jax_mx._mx_array import MXArray
from jax_mx._scale_rule import ScaleRule
from jax_mx.checkpoint._safetensors import CheckpointError

VERSION = 1
"""The version of what files say of themselves, npz and converted safetensors files alike."""


class _Versioned(msgspec.Struct):
    """The one field that every version has, whatever else it may have."""

    version: int


def check_version(text: str | bytes, path: object) -> None:
    """Refuses the JSON metadata of a file of another version than this package writes.

    Raises:
        CheckpointError: it is of another version.
        msgspec.DecodeError: it says of no version.
    """
    version = msgspec.json.decode(text, type=_Versioned).version
    if version != VERSION:
        written = ": a newer jax_mx wrote it" if version > VERSION else ""
        raise CheckpointError(f"{path}: got version {version} of its metadata, want {VERSION}{written}")


class RuleMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a scale rule."""

    name: str
    headroom_8bit: int
    headroom_4bit: int
    min_scale: int
    propagate_nan: bool


class ArrayMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an `MXArray` is besides its leaves; `axis` is counted from the end."""

    format: str
    axis: int
    dtype: str
    rule: RuleMetadata | None


def describe(array: MXArray) -> ArrayMetadata:
    """The metadata of an array."""
    rule = None if array.rule is None else RuleMetadata(**dataclasses.asdict(array.rule))
    return ArrayMetadata(array.format.name, array.axis - array.ndim, array.dtype.name, rule)


def restore(data: Any, scale: Any, metadata: ArrayMetadata) -> MXArray:
    """Puts an array together again.

    Raises:
        TypeError: the leaves are not of the format's dtypes.
        ValueError: the leaves or the metadata do not fit each other.
    """
    return MXArray(
        data,
        scale,
        metadata.format,
        axis=metadata.axis,
        rule=restore_rule(metadata.rule),
        dtype=metadata.dtype,
    )


def restore_rule(metadata: RuleMetadata | None) -> ScaleRule | None:
    """A scale rule again. Raises ValueError when a field is out of range."""
    return None if metadata is None else ScaleRule(**msgspec.structs.asdict(metadata))

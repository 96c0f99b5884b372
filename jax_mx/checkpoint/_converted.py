"""The file that `convert` writes: containers and scales of each weight, and metadata that says what they are.

A weight `w` is stored as the tensors `w.data` and `w.scale`. The text metadata `jax_mx` is JSON: version, layout, pack
offset and, for each weight, what `ArrayMetadata` holds.
"""

import dataclasses
import enum
from typing import Any

import msgspec

from jax_mx._mx_array import MXArray
from jax_mx.checkpoint._metadata import ArrayMetadata, check_version, restore, restore_rule
from jax_mx.checkpoint._safetensors import CheckpointError, SafetensorsFile
from jax_mx.checkpoint._tiles import from_tiles

METADATA_KEY = "jax_mx"


class Layout(enum.StrEnum):
    """How `convert` lays weights out."""

    LOGICAL = "logical"
    """data [..., N, K/4] and scale [..., N, K/32], as `MXArray` has them."""

    TILE = "tile"
    """data [..., K/4, N] and physical scale rows [..., K/4, N], as Trainium's tiles have them."""


class FileMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a converted file."""

    version: int
    layout: Layout
    offset: int
    arrays: dict[str, ArrayMetadata]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertedWeight:
    """A weight of a converted file.

    Attributes:
        name: its name.
        layout: how it is laid out.
        offset: the pack offset of its scale rows, in tile layout.
        metadata: what it is.
    """

    name: str
    layout: Layout
    offset: int
    metadata: ArrayMetadata

    @property
    def codes(self) -> str:
        """Name of the tensor of containers."""
        return f"{self.name}.data"

    @property
    def scales(self) -> str:
        """Name of the tensor of scale bytes."""
        return f"{self.name}.scale"

    def read(self, file: SafetensorsFile) -> MXArray:
        """Reads the weight.

        Raises:
            CheckpointError: its tensors are not what the metadata says.
        """
        data, scale = file.array(self.codes), file.array(self.scales)
        try:
            return self._restore(data, scale)
        except (TypeError, ValueError) as e:
            raise CheckpointError(
                f"{file.path}: {self.name}: its tensors {self.codes!r} and {self.scales!r} are not what its metadata "
                f"'{METADATA_KEY}' says: {e}"
            ) from None

    def _restore(self, data: Any, scale: Any) -> MXArray:
        if self.layout is Layout.LOGICAL:
            return restore(data, scale, self.metadata)
        return from_tiles(
            data,
            scale,
            self.metadata.format,
            offset=self.offset,
            rule=restore_rule(self.metadata.rule),
            dtype=self.metadata.dtype,
        )


def read_converted(file: SafetensorsFile) -> list[ConvertedWeight] | None:
    """The weights of a converted file; None when `convert` did not write it.

    Raises:
        CheckpointError: its metadata cannot be read or is of another version, or a weight's tensor is missing.
    """
    text = file.metadata.get(METADATA_KEY)
    if text is None:
        return None
    try:
        check_version(text, file.path)
        metadata = msgspec.json.decode(text, type=FileMetadata)
    except msgspec.DecodeError as e:
        raise CheckpointError(f"{file.path}: its metadata '{METADATA_KEY}' is not what convert writes: {e}") from None
    weights = [
        ConvertedWeight(name=name, layout=metadata.layout, offset=metadata.offset, metadata=array)
        for name, array in metadata.arrays.items()
    ]
    missing = [part for w in weights for part in (w.codes, w.scales) if part not in file.entries]
    if missing:
        raise CheckpointError(f"{file.path}: no tensor {missing[0]!r}, which its metadata names")
    return weights

"""Reads safetensors files that hold MX weights, one tensor at a time."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from jax_mx._compat import api_boundary
from jax_mx._mx_array import MXArray
from jax_mx.checkpoint._conventions import StoredWeight, find_weights
from jax_mx.checkpoint._converted import ConvertedWeight, read_converted
from jax_mx.checkpoint._safetensors import SafetensorsFile


class Checkpoint:
    """An open safetensors file: MX weights and other tensors by name. Nothing is read before it is asked for."""

    @api_boundary
    def __init__(self, path: str | os.PathLike[str]):
        """Opens a file and finds its MX weights.

        Raises:
            CheckpointError: it is no valid safetensors file, or a weight's codes and scales do not fit each other.
            ImportError: the package safetensors is not installed.
            OSError: it cannot be read.
        """
        self.file = SafetensorsFile(path)
        converted = read_converted(self.file)
        stored: list[StoredWeight] | list[ConvertedWeight] = (
            find_weights(self.file.entries, self.file.metadata, path) if converted is None else converted
        )
        self._weights: dict[str, StoredWeight | ConvertedWeight] = {weight.name: weight for weight in stored}
        parts = {part for weight in stored for part in (weight.codes, weight.scales)}
        self._others = tuple(name for name in self.file.entries if name not in parts)

    @property
    def weights(self) -> dict[str, StoredWeight | ConvertedWeight]:
        """The MX weights by name, as the file stores them."""
        return dict(self._weights)

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the tensors that are part of no MX weight."""
        return self._others

    @property
    def names(self) -> tuple[str, ...]:
        """The names of everything that can be read: MX weights, then other tensors."""
        return (*self._weights, *self._others)

    @api_boundary
    def read(self, name: str, rows: slice | None = None) -> MXArray | np.ndarray[Any, Any]:
        """Reads one weight or tensor, or some of its rows.

        Args:
            name: one of `names`.
            rows: a slice of the first axis; all of it by default. For a weight of more than one axis, or a tensor.

        Returns:
            An `MXArray` for a weight, whose codes and scale bytes are those of the file; a numpy array for any other
            tensor.

        Raises:
            CheckpointError: its tensors are not what the file's metadata says, or are of an unknown dtype.
            KeyError: there is none of this name.
            ValueError: a row slice would cut through blocks.
        """
        if name in self._weights:
            return _read_weight(self.file, self._weights[name], rows)
        if name not in self._others:
            raise KeyError(f"{self.file.path}: no tensor {name!r}; it has {', '.join(self.names) or 'none'}")
        array = self.file.array(name)
        return np.array(array if rows is None else array[rows])

    def items(self) -> Iterator[tuple[str, MXArray | np.ndarray[Any, Any]]]:
        """Reads everything, one after the other: only one is in memory unless the caller keeps them."""
        for name in self.names:
            yield name, self.read(name)


def _read_weight(file: SafetensorsFile, weight: StoredWeight | ConvertedWeight, rows: slice | None) -> MXArray:
    if isinstance(weight, ConvertedWeight):
        array = weight.read(file)
        return array if rows is None else array[rows]
    if rows is not None and len(weight.shape) < 2:
        raise ValueError(f"rows: got {rows} for {weight.name} of shape {weight.shape}, want None: it has one axis")
    data, scale = containers_of(file, weight), file.raw(weight.scales).reshape(weight.scale_shape)
    if rows is not None:
        data, scale = data[rows], scale[rows]
    return MXArray(np.array(data), np.array(scale), weight.format.name)


def containers_of(file: SafetensorsFile, weight: StoredWeight) -> np.ndarray[Any, Any]:
    """The x4 containers of a weight: its codes' bytes, seen as little-endian words."""
    words = file.raw(weight.codes).view(weight.format.container_dtype.newbyteorder("<"))
    return words.reshape(weight.data_shape)


@api_boundary
def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Opens a safetensors file with MX weights.

    Known are the ways in which published models store them: MXFP4 as `*_blocks` and `*_scales`, compressed-tensors
    (`*_packed` with `*_scale` for MXFP4, float8 codes with uint8 `*_scale` for MXFP8) and torchao (`_*_qdata` with
    `_*_scale`); and what `convert` writes.

    Args:
        path: the file.

    Returns:
        The open file; `Checkpoint.read` and `Checkpoint.items` read from it.

    Raises:
        CheckpointError: it is no valid safetensors file, or a weight's codes and scales do not fit each other.
        ImportError: the package safetensors is not installed.
        OSError: it cannot be read.
    """
    return Checkpoint(path)


@api_boundary
def load(path: str | os.PathLike[str]) -> dict[str, MXArray | np.ndarray[Any, Any]]:
    """Reads a whole safetensors file with MX weights; see `open_checkpoint`.

    Args:
        path: the file.

    Returns:
        `MXArray`s and, for all other tensors, numpy arrays, by name.

    Raises:
        CheckpointError: as `open_checkpoint` and `Checkpoint.read` do.
        ImportError: as `open_checkpoint` does.
        OSError: as `open_checkpoint` does.
    """
    return dict(Checkpoint(path).items())

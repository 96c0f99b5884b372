"""`convert`: streams a published checkpoint into one of x4 containers, part by part, so that it need not fit in memory.

Codes and scale bytes are copied, never computed: the logical layout has the very bytes of the input under another type,
the tile layout has them in another order.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jax_mx._atomic import replacing
from jax_mx._compat import api_boundary
from jax_mx.checkpoint._conventions import StoredWeight, find_weights
from jax_mx.checkpoint._converted import METADATA_KEY, ConvertedWeight, FileMetadata, Layout
from jax_mx.checkpoint._metadata import VERSION, ArrayMetadata
from jax_mx.checkpoint._reader import containers_of
from jax_mx.checkpoint._safetensors import (
    DTYPES,
    CheckpointError,
    Entry,
    SafetensorsFile,
    header_bytes,
    nbytes_of,
)
from jax_mx.checkpoint._tiles import QUADRANT_ELEMENTS, check_offset, physical_rows, tiles_problem

CHUNK_BYTES = 16 * 2**20
"""How much is copied at a time."""

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all and the name of what is being written."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Converted:
    """What `convert` did.

    Attributes:
        weights: the MX weights, as the input stored them.
        copied: names of the tensors that were copied as they are.
        nbytes: size of the output's tensors.
    """

    weights: tuple[StoredWeight, ...]
    copied: tuple[str, ...]
    nbytes: int


Step = Callable[[int], None]
"""Called with the number of bytes that were written."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Output:
    """A tensor of the output; `write` fills its bytes, which start as zeros, and says so step by step."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    write: Callable[[np.ndarray[Any, Any], Step], None]


@api_boundary
def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    layout: str = Layout.LOGICAL,
    offset: int = 0,
    progress: Progress | None = None,
) -> Converted:
    """Converts a safetensors file with MX weights to one that holds x4 containers, without changing a code or scale.

    Both files are mapped and copied in parts of some 16 MB, so neither need fit in memory. Each weight `w` becomes the
    tensors `w.data` and `w.scale`; other tensors are copied. The output appears when it is complete; `load` reads it.

    Args:
        source: the file to read; see `open_checkpoint` for what it may hold.
        target: the file to write.
        layout: "logical": data [..., N, K/4] and scale [..., N, K/32]. "tile": data [..., K/4, N] and physical scale
            rows [..., K/4, N], for Trainium; see `to_tiles`.
        offset: the pack offset of the scale rows in the tile layout, 0, 4, 8 or 12.
        progress: called with (bytes done, bytes in all, name) after every part.

    Returns:
        What was converted and what was copied.

    Raises:
        CheckpointError: the input is no valid file, holds no MX weight, or a weight cannot be laid out so.
        ImportError: the package safetensors is not installed.
        OSError: a file cannot be read or written.
        TypeError: `offset` is no integer.
        ValueError: `layout` or `offset` is none of these, or the files are the same.
    """
    if layout not in tuple(Layout):
        raise ValueError(f"layout: got {layout!r}, want one of {', '.join(Layout)}")
    chosen = Layout(layout)
    offset = check_offset(offset)
    if offset and chosen is Layout.LOGICAL:
        raise ValueError(f"offset: got {offset} for the logical layout, want 0: only tiles have pack offsets")
    file = SafetensorsFile(source)
    target = Path(target)
    if target.exists() and target.samefile(file.path):
        raise ValueError(f"target: got {target}, want another file than source")
    weights = find_weights(file.entries, file.metadata, source)
    if not weights:
        known = "already converted" if METADATA_KEY in file.metadata else "no codes with scale bytes beside them"
        raise CheckpointError(f"{source}: got no MX weight to convert: {known}")
    parts = {part for weight in weights for part in (weight.codes, weight.scales)}
    copied = tuple(name for name in file.entries if name not in parts)
    outputs = [output for weight in weights for output in _weight_outputs(file, weight, chosen, offset)]
    outputs += [_copied(file, file.entries[name]) for name in copied]
    names = [output.name for output in outputs]
    clashing = sorted({name for name in names if names.count(name) > 1})
    if clashing:
        raise CheckpointError(f"{source}: two tensors of the output would be named {clashing[0]!r}")
    metadata = {**file.metadata, METADATA_KEY: _metadata_text(weights, chosen, offset)}
    _write(target, outputs, metadata, progress)
    return Converted(weights=tuple(weights), copied=copied, nbytes=sum(output.nbytes for output in outputs))


def _metadata_text(weights: list[StoredWeight], layout: Layout, offset: int) -> str:
    # What rule and dtype a published weight was quantized from, no checkpoint says.
    arrays = {w.name: ArrayMetadata(w.format.name, -1, "bfloat16", None) for w in weights}
    return msgspec.json.encode(FileMetadata(VERSION, layout, offset, arrays)).decode()


def _weight_outputs(file: SafetensorsFile, weight: StoredWeight, layout: Layout, offset: int) -> list[_Output]:
    metadata = ArrayMetadata(weight.format.name, -1, "bfloat16", None)
    names = ConvertedWeight(name=weight.name, layout=layout, offset=offset, metadata=metadata)
    data_dtype = "U32" if weight.format.bits == 8 else "U16"
    if layout is Layout.LOGICAL:
        return [
            _raw(file, names.codes, data_dtype, weight.data_shape, weight.codes),
            _raw(file, names.scales, "U8", weight.scale_shape, weight.scales),
        ]
    problem = tiles_problem(weight.shape)
    if problem:
        raise CheckpointError(
            f"{file.path}: {weight.name}: got {problem}, want [..., N, K] with K a multiple of {QUADRANT_ELEMENTS} "
            "for the tile layout"
        )
    shape = (*weight.shape[:-2], weight.data_shape[-1], weight.shape[-2])
    data = containers_of(file, weight)
    scale = file.raw(weight.scales).reshape(weight.scale_shape)
    rows = physical_rows(weight.scale_shape[-1], offset)
    return [
        _transposed(names.codes, data_dtype, shape, data, np.arange(shape[-2])),
        _transposed(names.scales, "U8", shape, scale, rows),
    ]


def _transposed(
    name: str, dtype: str, shape: tuple[int, ...], source: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]
) -> _Output:
    """An output [..., k, N] whose given rows are those of `source` [..., N, len(rows)]; the others are zero."""
    columns = shape[-1]
    column_bytes = shape[-2] * DTYPES[dtype].itemsize
    at_a_time = max(1, CHUNK_BYTES // max(1, column_bytes))

    def write(raw: np.ndarray[Any, Any], step: Step) -> None:
        out = raw.view(DTYPES[dtype]).reshape(shape)
        for leading in np.ndindex(shape[:-2]):
            for start in range(0, columns, at_a_time):
                stop = min(start + at_a_time, columns)
                out[leading][rows, start:stop] = source[leading][start:stop].T
                step((stop - start) * column_bytes)

    return _Output(name=name, dtype=dtype, shape=shape, nbytes=nbytes_of(dtype, shape), write=write)


def _raw(file: SafetensorsFile, name: str, dtype: str, shape: tuple[int, ...], source: str) -> _Output:
    """An output with the bytes of a tensor of the input."""

    def write(raw: np.ndarray[Any, Any], step: Step) -> None:
        given = file.raw(source)
        for start in range(0, len(given), CHUNK_BYTES):
            part = slice(start, start + CHUNK_BYTES)
            raw[part] = given[part]
            step(len(given[part]))

    return _Output(name=name, dtype=dtype, shape=shape, nbytes=file.entries[source].nbytes, write=write)


def _copied(file: SafetensorsFile, entry: Entry) -> _Output:
    return _raw(file, entry.name, entry.dtype, entry.shape, entry.name)


def _write(target: Path, outputs: list[_Output], metadata: dict[str, str], progress: Progress | None) -> None:
    # Wide dtypes first keeps every tensor aligned, as the library itself orders them; the sort is stable.
    ordered = sorted(outputs, key=lambda output: -DTYPES[output.dtype].itemsize if output.dtype in DTYPES else 0)
    header = header_bytes({o.name: (o.dtype, o.shape, o.nbytes) for o in ordered}, metadata)
    total = sum(output.nbytes for output in ordered)
    done = 0
    with replacing(target) as temporary:
        with temporary.open("r+b") as file:
            file.write(header)
            file.flush()
            _reserve(file.fileno(), len(header) + total)
        at = len(header)
        for output in ordered:

            def step(count: int, name: str = output.name) -> None:
                nonlocal done
                done += count
                if progress is not None:
                    progress(done, total, name)

            if output.nbytes:
                mapped = np.memmap(temporary, np.uint8, "r+", at, (output.nbytes,))
                output.write(mapped.view(np.ndarray), step)
                mapped.flush()
            at += output.nbytes


def _reserve(descriptor: int, size: int) -> None:
    """Makes a file this long, with room on the disk: a full disk is an error here, not a crash while writing."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)

"""How published checkpoints store MX weights: a flat table of naming and packing conventions.

Every convention stores two tensors for a weight, codes and scale bytes, with the blocks along the last axis of the
weight. Two 4-bit codes share a byte, the first in the low nibble, so the bytes of codes are in every convention exactly
those of little-endian x4 containers.
"""

import dataclasses
import json
import re
from collections.abc import Mapping

from jax_mx._check import scale_length
from jax_mx._formats import BLOCK_SIZE, FLOAT4_E2M1FN, FLOAT8_E4M3FN, FLOAT8_E5M2, LANES, ElementFormat
from jax_mx.checkpoint._safetensors import CheckpointError, Entry

_FP8 = {"F8_E4M3": FLOAT8_E4M3FN, "F8_E5M2": FLOAT8_E5M2}
_SCALE_DTYPES = ("U8", "F8_E8M0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Convention:
    """One way to store a weight.

    Attributes:
        name: what messages call it.
        codes: pattern of the codes tensor's name, with groups from which the other names are built.
        scales: the scales tensor's name.
        weight: the weight's name.
        formats: element formats by the dtype of the codes tensor.
        blocks: whether codes have the shape [..., K/32, bytes of a block] instead of [..., bytes of K].
    """

    name: str
    codes: str
    scales: str
    weight: str
    formats: Mapping[str, ElementFormat]
    blocks: bool = False


CONVENTIONS = (
    Convention(
        name="MXFP4 blocks",
        codes=r"(.+)([_.])blocks",
        scales=r"\1\2scales",
        weight=r"\1",
        formats={"U8": FLOAT4_E2M1FN},
        blocks=True,
    ),
    Convention(
        name="compressed-tensors MXFP4",
        codes=r"(.+)_packed",
        scales=r"\1_scale",
        weight=r"\1",
        formats={"U8": FLOAT4_E2M1FN},
    ),
    Convention(
        name="torchao",
        codes=r"(.+\.|)_(.+)_qdata",
        scales=r"\1_\2_scale",
        weight=r"\1\2",
        formats={**_FP8, "U8": FLOAT4_E2M1FN, "F4": FLOAT4_E2M1FN},
    ),
    Convention(
        name="compressed-tensors MXFP8",
        codes=r"(.+)",
        scales=r"\1_scale",
        weight=r"\1",
        formats=_FP8,
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredWeight:
    """A weight as a file stores it.

    Attributes:
        name: the weight's name.
        codes: name of the tensor of codes.
        scales: name of the tensor of scale bytes.
        format: the element format.
        shape: the logical shape [..., K]; blocks lie along the last axis.
        convention: the convention's name.
    """

    name: str
    codes: str
    scales: str
    format: ElementFormat
    shape: tuple[int, ...]
    convention: str

    @property
    def data_shape(self) -> tuple[int, ...]:
        """Shape of the containers."""
        return (*self.shape[:-1], self.shape[-1] // LANES)

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """Shape of the scale bytes."""
        return (*self.shape[:-1], scale_length(self.shape[-1]))


def find_weights(entries: Mapping[str, Entry], metadata: Mapping[str, str], path: object) -> list[StoredWeight]:
    """The MX weights among a file's tensors, in the file's order.

    A tensor of codes with no scale bytes beside it is not one. One whose shapes contradict each other is an error.

    Raises:
        CheckpointError: shapes do not fit, or scales are stored in an order that is not that of the blocks.
    """
    weights: dict[str, StoredWeight] = {}
    for entry in entries.values():
        weight = _match(entry, entries, metadata, path)
        if weight is None:
            continue
        if weight.name in weights or (weight.name in entries and weight.name != weight.codes):
            raise CheckpointError(f"{path}: {weight.name}: got more than one tensor that stores it")
        weights[weight.name] = weight
    return list(weights.values())


def _match(
    entry: Entry, entries: Mapping[str, Entry], metadata: Mapping[str, str], path: object
) -> StoredWeight | None:
    for convention in CONVENTIONS:
        match = re.fullmatch(convention.codes, entry.name)
        if match is None or entry.dtype not in convention.formats:
            continue
        scales = entries.get(match.expand(convention.scales))
        if scales is None or scales.dtype not in _SCALE_DTYPES:
            continue
        fmt = convention.formats[entry.dtype]
        weight = StoredWeight(
            name=match.expand(convention.weight),
            codes=entry.name,
            scales=scales.name,
            format=fmt,
            shape=_logical_shape(entry, fmt, convention, path),
            convention=convention.name,
        )
        _refuse_swizzled(weight, metadata, path)
        if scales.shape != weight.scale_shape:
            raise CheckpointError(
                f"{path}: {scales.name}: got shape {list(scales.shape)}, want {list(weight.scale_shape)} for the codes "
                f"{entry.name} of shape {list(entry.shape)} ({convention.name})"
            )
        return weight
    return None


def _logical_shape(entry: Entry, fmt: ElementFormat, convention: Convention, path: object) -> tuple[int, ...]:
    shape = entry.shape
    if convention.blocks:
        block_bytes = BLOCK_SIZE * fmt.bits // 8
        if len(shape) < 2 or shape[-1] != block_bytes:
            raise CheckpointError(
                f"{path}: {entry.name}: got shape {list(shape)}, want [..., K/{BLOCK_SIZE}, {block_bytes}] "
                f"({convention.name})"
            )
        return (*shape[:-2], shape[-2] * BLOCK_SIZE)
    codes_per_item = 2 if entry.dtype == "U8" else 1
    if len(shape) < 1 or shape[-1] * codes_per_item % LANES:
        raise CheckpointError(
            f"{path}: {entry.name}: got shape {list(shape)} of {entry.dtype}, want a multiple of {LANES} codes along "
            f"the last axis ({convention.name})"
        )
    return (*shape[:-1], shape[-1] * codes_per_item)


def _refuse_swizzled(weight: StoredWeight, metadata: Mapping[str, str], path: object) -> None:
    """Torchao can store scales in the order of a GPU instruction's tiles, and says so in the metadata."""
    text = metadata.get(weight.name)
    if weight.convention != "torchao" or text is None:
        return
    try:
        described = json.loads(text)
        swizzled = described["_data"]["is_swizzled_scales"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return  # written by another version; the shapes have been checked
    if swizzled:
        raise CheckpointError(
            f"{path}: {weight.name}: got scales in a GPU's swizzled order, want them in the order of the blocks: "
            "save the weight with is_swizzled_scales=False"
        )

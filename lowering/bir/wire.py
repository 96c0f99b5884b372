"""Encodes a QuantizeMx as its 64-byte instruction word, and reads a word back.

A word is little-endian; every byte outside the field table is zero. The partition pair of an access is not in the
pattern: its start is part of the address, its count is the active partitions. The class id of BIR (96) does not occur
here and the opcode (0xE3) does not occur in BIR; only the name joins them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lowering.bir.access import AccessError, locations_of, resolve
from lowering.bir.dtypes import BF16, E2M1_X4, E4M3_X4, E5M2_X4, F16, Dtype
from lowering.bir.errors import EncodeError
from lowering.bir.geometry import CORE_V4
from lowering.bir.program import (
    DVE,
    AccessPattern,
    Function,
    Instruction,
    MemoryLocation,
    Module,
    chosen_function,
)
from lowering.bir.verify import check

__all__ = ["WORD_BYTES", "EncodedProgram", "QuantizeMxWord", "decode", "encode", "encode_module", "word_of"]

WORD_BYTES = 64
OPCODE = 0xE3
_LENGTH = 0x10  # in dwords
_NO_SATURATION = 0x01
_QUADRANT_MASK = 0xFF800000  # keeps the quadrant of a flat SBUF address: 32 partitions of 2^18 bytes

SOURCE_TAGS: dict[int, Dtype] = {dtype.wire_tag: dtype for dtype in (BF16, F16)}
DATA_TAGS: dict[int, Dtype] = {dtype.wire_tag: dtype for dtype in (E4M3_X4, E5M2_X4, E2M1_X4)}


@dataclass(frozen=True)
class QuantizeMxWord:
    """The fields of a QuantizeMx word, in the order of their offsets.

    Attributes:
        saturation_disabled: fp8 saturation was disabled for the module; bit 0 of the second header byte.
        wait_mode: Synchronisation, zero here.
        wait_semaphore: Synchronisation, zero here.
        update_mode: Synchronisation, zero here.
        update_semaphore: Synchronisation, zero here.
        sync_value: Synchronisation, zero here.
        source_address: Flat address of the first source element.
        source_steps: Steps of the free dims, innermost first, in elements; 1 where unused.
        source_nums: Counts of the free dims, innermost first; 1 where unused.
        partitions: Active partitions.
        source_tag: Wire tag of the source dtype.
        data_tag: Wire tag of the data dtype.
        data_address: Flat address of the first data container.
        scale_address: Flat address of the scale's byte in the first partition of its quadrant.
        data_elements: MX elements per partition, containers times four.
        data_step_sign: 0x01 when containers ascend, 0xFF when they descend.
        scale_start: Start partition of the scale within its quadrant.
    """

    source_address: int
    source_steps: tuple[int, int, int]
    source_nums: tuple[int, int, int]
    partitions: int
    source_tag: int
    data_tag: int
    data_address: int
    scale_address: int
    data_elements: int
    data_step_sign: int
    scale_start: int
    saturation_disabled: bool = False
    wait_mode: int = 0
    wait_semaphore: int = 0
    update_mode: int = 0
    update_semaphore: int = 0
    sync_value: int = 0


_FIELDS: tuple[tuple[str, int, str], ...] = (
    ("wait_mode", 0x04, "<B"),
    ("wait_semaphore", 0x05, "<B"),
    ("update_mode", 0x06, "<B"),
    ("update_semaphore", 0x07, "<B"),
    ("sync_value", 0x08, "<I"),
    ("source_address", 0x10, "<I"),
    ("source_steps", 0x14, "<3h"),
    ("source_nums", 0x1A, "<3H"),
    ("partitions", 0x21, "<B"),
    ("source_tag", 0x22, "<B"),
    ("data_tag", 0x23, "<B"),
    ("data_address", 0x30, "<I"),
    ("scale_address", 0x34, "<I"),
    ("data_elements", 0x38, "<H"),
    ("data_step_sign", 0x3A, "<B"),
    ("scale_start", 0x3B, "<B"),
)
"""Field, offset and struct format; the header is written apart."""


@dataclass(frozen=True)
class EncodedProgram:
    """The words of one engine.

    Attributes:
        words: The words, one after another.
        names: Name of the instruction behind each word.
        left_out: Instructions of the engine whose encoding is not known, so they have no word.
    """

    words: bytes
    names: tuple[str, ...]
    left_out: tuple[str, ...]


def encode(word: QuantizeMxWord) -> bytes:
    """Encodes one instruction word.

    Args:
        word: The fields of a QuantizeMx.

    Returns:
        64 bytes, little-endian, as the published instruction format lays them out.

    Raises:
        EncodeError: A field does not fit its bytes or has a value the instruction does not know.
    """
    _check_fields(word)
    out = bytearray(WORD_BYTES)
    out[0], out[1] = OPCODE, _LENGTH | (_NO_SATURATION if word.saturation_disabled else 0)
    for name, offset, layout in _FIELDS:
        value = getattr(word, name)
        try:
            struct.pack_into(layout, out, offset, *(value if isinstance(value, tuple) else (value,)))
        except struct.error as error:
            raise EncodeError(f"{name} is {value}: {error}") from error
    return bytes(out)


def decode(data: bytes) -> QuantizeMxWord:
    """Reads one instruction word.

    Args:
        data: 64 bytes.

    Returns:
        The fields; `encode` gives the same bytes back.

    Raises:
        EncodeError: `data` is not a QuantizeMx word.
    """
    if len(data) != WORD_BYTES:
        raise EncodeError(f"a word has {len(data)} bytes, wanted {WORD_BYTES}")
    if data[0] != OPCODE or data[1] & ~_NO_SATURATION != _LENGTH:
        raise EncodeError(f"the header is {data[0]:#04x} {data[1]:#04x}, wanted {OPCODE:#04x} 0x10 or 0x11")
    values: dict[str, Any] = {"saturation_disabled": bool(data[1] & _NO_SATURATION)}
    used = {0, 1}
    for name, offset, layout in _FIELDS:
        found = struct.unpack_from(layout, data, offset)
        values[name] = found if len(found) > 1 else found[0]
        used.update(range(offset, offset + struct.calcsize(layout)))
    stray = [offset for offset in range(WORD_BYTES) if offset not in used and data[offset]]
    if stray:
        raise EncodeError(f"byte {stray[0]:#04x} is {data[stray[0]]:#04x}, wanted 0: it belongs to no field")
    word = QuantizeMxWord(**values)
    _check_fields(word)
    return word


def word_of(
    instruction: Instruction, locations: Mapping[str, MemoryLocation], *, saturate: bool = True
) -> QuantizeMxWord:
    """The word of a QuantizeMx instruction.

    Args:
        instruction: The instruction, operands in SBUF.
        locations: Memory locations by name.
        saturate: The module's fp8 saturation setting.

    Raises:
        EncodeError: The instruction has no encoding.
    """
    name = instruction.name
    operands = [o for o in (*instruction.ins, *instruction.outs) if isinstance(o, AccessPattern)]
    if instruction.opcode != "QuantizeMx" or len(instruction.ins) != 1 or len(operands) != 3:
        raise EncodeError(f"{name} is no QuantizeMx of one source, data and scale in memory")
    for operand in operands:
        place = locations.get(operand.memref)
        if place is None or place.type != "SB":
            raise EncodeError(f"{name}: {operand.memref} is not a location in SBUF")
    try:
        source, data, scale = (resolve(operand, locations[operand.memref]) for operand in operands)
    except AccessError as error:
        raise EncodeError(f"{name}: {error}") from error
    if data.dtype not in DATA_TAGS.values():
        raise EncodeError(f"{name}: data is {data.dtype.name}, wanted an x4 dtype: one container holds four elements")
    if source.dtype not in SOURCE_TAGS.values():
        raise EncodeError(f"{name}: the source is {source.dtype.name}, wanted bfloat16 or float16")
    dims = [pair for pair in reversed(source.free_dims) if pair[1] != 1]
    if len(dims) > 3:
        raise EncodeError(f"{name}: the source has {len(dims)} free dims of num above 1; the word holds 3")
    dims += [(1, 1)] * (3 - len(dims))
    data_step, containers = _run(name, "data", data.free_dims)
    if _run(name, "scale", scale.free_dims)[0] != 1:
        raise EncodeError(f"{name}: scale has step -1, wanted 1: the word holds a step sign for data only")
    flat_scale = CORE_V4.sbuf_address(scale.partition, 0) & _QUADRANT_MASK
    return QuantizeMxWord(
        source_address=CORE_V4.sbuf_address(source.partition, source.byte),
        source_steps=(dims[0][0], dims[1][0], dims[2][0]),
        source_nums=(dims[0][1], dims[1][1], dims[2][1]),
        partitions=source.partitions,
        source_tag=source.dtype.wire_tag,
        data_tag=data.dtype.wire_tag,
        data_address=CORE_V4.sbuf_address(data.partition, data.byte),
        scale_address=flat_scale + scale.byte,
        data_elements=containers * 4,
        data_step_sign=0x01 if data_step == 1 else 0xFF,
        scale_start=scale.partition % CORE_V4.quadrant,
        saturation_disabled=not saturate,
    )


def encode_module(
    module: Module, function: Function | str | None = None, *, saturate: bool = True, allow_fp4: bool = False
) -> EncodedProgram:
    """The words of the vector engine (DVE) in one function, in program order.

    Args:
        module: The program; it is verified first.
        function: Which function to encode, or its name; may be left out when there is one.
        saturate: The module's fp8 saturation setting; False sets a bit in every header.
        allow_fp4: Accept fp4 output.

    Returns:
        64 bytes for each QuantizeMx, and the names of those and of the engine's other instructions, whose encoding is
        not known.

    Raises:
        VerificationError: `module` breaks a rule.
        EncodeError: `function` is not one of the module's, or a QuantizeMx has no encoding.
    """
    check(module, allow_fp4=allow_fp4)
    function = chosen_function(module, function, EncodeError)
    places = locations_of(function)
    mine = [instruction for instruction in function.instructions() if instruction.engine == DVE.name]
    known = [instruction for instruction in mine if instruction.opcode == "QuantizeMx"]
    words = b"".join(encode(word_of(instruction, places, saturate=saturate)) for instruction in known)
    left_out = tuple(instruction.name for instruction in mine if instruction.opcode != "QuantizeMx")
    return EncodedProgram(words, tuple(instruction.name for instruction in known), left_out)


def _run(name: str, role: str, dims: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Step (1 or -1) and count of free dims that are one run of neighbours."""
    moving = [pair for pair in dims if pair[1] != 1] or [(1, 1)]
    if len(moving) > 1 or moving[0][0] not in (1, -1):
        raise EncodeError(f"{name}: {role} has free pairs {[list(pair) for pair in dims]}, wanted one of step 1 or -1")
    return moving[0]


def _check_fields(word: QuantizeMxWord) -> None:
    """What the byte layout alone does not say."""
    data = DATA_TAGS.get(word.data_tag)
    checks = (
        ("source_nums", word.source_nums, 0 not in word.source_nums, "no 0"),
        ("partitions", word.partitions, word.partitions in (32, 64, 96, 128), "32, 64, 96 or 128"),
        ("source_tag", word.source_tag, word.source_tag in SOURCE_TAGS, "6 (bf16) or 7 (f16)"),
        ("data_tag", word.data_tag, data is not None, "0x0e (e4m3fn), 0x0f (e5m2) or 0x10 (e2m1fn)"),
        ("source_address", word.source_address, word.source_address % 4 == 0, "a multiple of 4"),
        (
            "data_address",
            word.data_address,
            data is None or word.data_address % data.bytes == 0,
            "a multiple of the container's bytes",
        ),
        ("data_elements", word.data_elements, word.data_elements > 0, "at least 1"),
        ("data_step_sign", word.data_step_sign, word.data_step_sign in (0x01, 0xFF), "0x01 or 0xff"),
        ("scale_start", word.scale_start, word.scale_start in (0, 4, 8, 12), "0, 4, 8 or 12"),
    )
    for name, value, holds, wanted in checks:
        if not holds:
            raise EncodeError(f"{name} is {value}, wanted {wanted}")

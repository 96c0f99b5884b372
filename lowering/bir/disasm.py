"""Spells instruction words for people: one line per field, in the order of the bytes."""

from __future__ import annotations

from lowering.bir.errors import EncodeError
from lowering.bir.geometry import CORE_V4
from lowering.bir.wire import DATA_TAGS, SOURCE_TAGS, WORD_BYTES, QuantizeMxWord, decode

__all__ = ["disassemble", "spell_address"]


def disassemble(words: bytes) -> str:
    """Spells instruction words for people.

    Args:
        words: The content of a `.bin`: 64 bytes for each QuantizeMx, such as `encode_module(...).words`.

    Returns:
        A headline for each word and a line for each of its fields, in the order of the bytes.

    Raises:
        EncodeError: The length is no multiple of 64, or a word is no QuantizeMx; the message gives its offset.
    """
    if len(words) % WORD_BYTES:
        raise EncodeError(
            f"there are {len(words)} bytes, wanted a multiple of {WORD_BYTES}: words are {WORD_BYTES} bytes"
        )
    parts = []
    for offset in range(0, len(words), WORD_BYTES):
        data = words[offset : offset + WORD_BYTES]
        try:
            parts.append(_spell(offset, data, decode(data)))
        except EncodeError as error:
            raise EncodeError(f"word at {offset:#06x}: {error}") from error
    return "".join(parts)


def spell_address(address: int) -> str:
    """A flat address as memory, partition and byte."""
    if address >= CORE_V4.psum_base:
        rest = address - CORE_V4.psum_base
        partition, rest = divmod(rest, 1 << CORE_V4.psum_partition_shift)
        bank, offset = divmod(rest, 1 << CORE_V4.psum_bank_shift)
        return f"{address:#010x}  PSUM partition {partition} bank {bank} byte {offset:#x}"
    partition, byte = divmod(address, 1 << CORE_V4.sbuf_partition_shift)
    return f"{address:#010x}  SB partition {partition} byte {byte:#x}"


def _spell(offset: int, data: bytes, word: QuantizeMxWord) -> str:
    steps, nums = word.source_steps, word.source_nums
    pattern = " ".join(f"[{step}, {num}]" for step, num in zip(steps, nums, strict=True))
    sync = (word.wait_mode, word.wait_semaphore, word.update_mode, word.update_semaphore, word.sync_value)
    fields = (
        ("header", f"{data[1] << 8 | data[0]:#06x}{'  fp8 saturation disabled' if word.saturation_disabled else ''}"),
        ("sync", "none" if not any(sync) else "wait {} {}, update {} {}, value {}".format(*sync)),
        ("source", spell_address(word.source_address)),
        ("source pattern", f"{pattern}  [step, num], innermost first"),
        ("partitions", f"{word.partitions}"),
        ("source dtype", f"{word.source_tag:#04x}  {SOURCE_TAGS[word.source_tag].name}"),
        ("data dtype", f"{word.data_tag:#04x}  {DATA_TAGS[word.data_tag].name}"),
        ("data", spell_address(word.data_address)),
        ("scale", f"{spell_address(word.scale_address)}, rows from {word.scale_start}"),
        ("data elements", f"{word.data_elements} per partition, {'up' if word.data_step_sign == 1 else 'down'}"),
    )
    return f"{offset:#06x}  QuantizeMx\n" + "".join(f"    {name:<16}{value}\n" for name, value in fields)

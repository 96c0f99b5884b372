"""The disassembler: exact text of a word, and offsets in its errors."""

import pytest

from lowering.bir import EncodeError, disassemble
from lowering.bir.disasm import spell_address
from lowering.bir.geometry import CORE_V4

from .test_wire import PLAIN_HEX, TURNED_HEX

PLAIN, TURNED = bytes.fromhex(PLAIN_HEX), bytes.fromhex(TURNED_HEX)

TURNED_TEXT = """\
0x0040  QuantizeMx
    header          0x11e3  fp8 saturation disabled
    sync            none
    source          0x01800030  SB partition 96 byte 0x30
    source pattern  [1, 4] [-8, 3] [32, 2]  [step, num], innermost first
    partitions      32
    source dtype    0x07  float16
    data dtype      0x0f  float8_e5m2_x4
    data            0x01801014  SB partition 96 byte 0x1014
    scale           0x01801234  SB partition 96 byte 0x1234, rows from 4
    data elements   24 per partition, down
"""


def test_text() -> None:
    text = disassemble(PLAIN + TURNED)
    assert text.startswith("0x0000  QuantizeMx\n    header          0x10e3\n")
    assert text.endswith(TURNED_TEXT)


def test_no_words_no_text() -> None:
    assert disassemble(b"") == ""


def test_errors_give_the_offset() -> None:
    with pytest.raises(EncodeError) as caught:
        disassemble(PLAIN + bytes(64))
    assert str(caught.value) == "word at 0x0040: the header is 0x00 0x00, wanted 0xe3 0x10 or 0x11"
    with pytest.raises(EncodeError, match="there are 65 bytes, wanted a multiple of 64: words are 64 bytes"):
        disassemble(bytes(65))


def test_sync_fields_are_shown() -> None:
    data = bytearray(PLAIN)
    data[4:12] = bytes([1, 2, 3, 4, 5, 0, 0, 0])
    assert "    sync            wait 1 2, update 3 4, value 5\n" in disassemble(bytes(data))


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (0x01FFFFFF, "0x01ffffff  SB partition 127 byte 0x3ffff"),
        (0x02000000, "0x02000000  PSUM partition 0 bank 0 byte 0x0"),
        (0x02000000 + (3 << 15) + (7 << 11) + 0x7FF, "0x0201bfff  PSUM partition 3 bank 7 byte 0x7ff"),
    ],
)
def test_addresses(address: int, text: str) -> None:
    assert spell_address(address) == text


def test_address_formulas() -> None:
    """127 << 18 = 0x1fc0000; PSUM begins where SBUF's 128 partitions of 2^18 bytes end."""
    assert CORE_V4.sbuf_address(127, 0x3FFFF) == 0x01FFFFFF
    assert CORE_V4.psum_address(3, 7, 0x7FF) == 0x0201BFFF
    assert CORE_V4.psum_base == CORE_V4.partitions << CORE_V4.sbuf_partition_shift

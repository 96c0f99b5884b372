"""The picture: files of both kinds, every buffer and instruction named in it, and the order of the timeline."""

import pytest

from lowering.bir import BirError, LegalizedCall, LowerOptions, lower_calls
from lowering.bir.draw import draw_function
from lowering.bir.draw_sbuf import uses_of
from lowering.bir.schedule import schedule

MODULE = lower_calls([LegalizedCall((6, 36), "bfloat16", "float8_e4m3fn")], LowerOptions(columns_per_tile=2))
FUNCTION = MODULE.functions[0]


def test_svg_names_what_it_shows() -> None:
    text = draw_function(FUNCTION, ".svg").decode()
    assert text.startswith("<?xml")
    for word in (
        "sg0000: x bfloat16[6, 36] to data uint32[6, 9], scale uint8[6, 2] in 3 tiles",
        "byte in each partition; 50 of 245752 usable bytes",
        *("tile.src0", "tile.src1", "tile.data0", "tile.data1", "tile.scale0"),
        *("QuantizeMX-0", "QuantizeMX-1", "QuantizeMX-2"),
        *("DMA in", "DVE", "DMA out"),
        *("M0", "M1", "L0", "L1", "L2", "Q0", "Q1", "Q2", "S0", "S1", "S2", "S3", "S4", "S5"),
        *("flow: reads what it wrote", "anti: writes what it read", "output: writes what it wrote"),
        *("0-3", "4-7", "8-11"),
    ):
        assert f">{word}</text>" in text, word


def test_png() -> None:
    data = draw_function(FUNCTION, ".png")
    assert data[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_same_program_gives_the_same_file(suffix: str) -> None:
    assert draw_function(FUNCTION, suffix) == draw_function(FUNCTION, suffix)


def test_a_long_timeline_is_cut_and_says_so() -> None:
    text = draw_function(FUNCTION, ".svg", limit=4).decode()
    assert "; the first 4 of 14 instructions" in text
    assert ">Q0</text>" not in text


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(BirError, match=r"the picture.s suffix is \.pdf, wanted \.svg or \.png"):
        draw_function(FUNCTION, ".pdf")
    empty = lower_calls([LegalizedCall((0, 32), "bfloat16", "float8_e4m3fn")]).functions[0]
    with pytest.raises(BirError, match="sg0000 has no buffer in SBUF to draw"):
        draw_function(empty, ".svg")


def test_uses_of_buffers() -> None:
    """9 rows are loaded; the Memset fills 32, so 23 are padding."""
    uses = uses_of(FUNCTION)
    assert {name: use.role for name, use in uses.items()} == {
        "tile.src0": "source",
        "tile.src1": "source",
        "tile.data0": "data",
        "tile.data1": "data",
        "tile.scale0": "scale",
    }
    source = uses["tile.src0"]
    assert (source.loaded, source.zeroed) == ((1 << 9) - 1, (1 << 32) - 1)
    assert [(name, access.partition_mask) for name, access in uses["tile.scale0"].written] == [
        ("QuantizeMX-0", 0x00F),
        ("QuantizeMX-1", 0x0F0),
        ("QuantizeMX-2", 0xF00),
    ]


def test_schedule() -> None:
    """One step an instruction: DVE one at a time, DMA side by side in lanes, nothing before what it waits for."""
    slots = schedule(list(FUNCTION.instructions()))
    assert [(slot.instruction.name, slot.row, slot.lane, slot.step) for slot in slots] == [
        ("Memset-0", "DVE", 0, 0),
        ("Load-0", "DMA in", 0, 1),
        ("Memset-1", "DVE", 0, 1),
        ("Load-1", "DMA in", 0, 2),
        ("QuantizeMX-0", "DVE", 0, 2),
        ("Save-0", "DMA out", 0, 3),
        ("Save-1", "DMA out", 1, 3),
        ("Load-2", "DMA in", 0, 3),
        ("QuantizeMX-1", "DVE", 0, 3),
        ("Save-2", "DMA out", 0, 4),
        ("Save-3", "DMA out", 1, 4),
        ("QuantizeMX-2", "DVE", 0, 4),
        ("Save-4", "DMA out", 0, 5),
        ("Save-5", "DMA out", 1, 5),
    ]

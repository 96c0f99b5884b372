"""The commands that write words and pictures, run in this process."""

import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.lowering.tools import FIXTURES, mx_opt

from .test_wire import PLAIN_HEX

K36 = FIXTURES / "bir" / "k36.json"
LOWER = ("--passes=legalize-quantize-mx,lower-to-bir", "--emit=bir-json")


@pytest.fixture
def two_functions(tmp_path: Path) -> Path:
    """A lowered transformer block."""
    path = tmp_path / "t.json"
    assert mx_opt(FIXTURES / "valid" / "transformer_mlp.hlo", *LOWER, "-o", path).status == 0
    return path


def test_encode_and_disasm(tmp_path: Path) -> None:
    words = tmp_path / "k36.bin"
    result = mx_opt("bir", "encode", K36, "-o", words)
    assert (result.status, result.stderr) == (
        0,
        "sg0000, engine DVE: 1 word; no encoding is known for Memset-0\n",
    )
    # 3 columns: src 24 bytes at 0, data 12 at 24 = 0x18, scale 3 at 36 = 0x24; 12 elements a partition.
    assert words.read_bytes().hex(" ") == bytes.fromhex(
        "e3 10 00 00"
        + "00" * 12
        + "00 00 00 00 01 00 01 00 01 00 0c 00 01 00 01 00 00 20 06 0e"
        + "00" * 12
        + "18 00 00 00 24 00 00 00 0c 00 01 00"
        + "00" * 4
    ).hex(" ")
    shown = mx_opt("bir", "disasm", words)
    assert shown.status == 0
    assert "    source pattern  [1, 12] [1, 1] [1, 1]  [step, num], innermost first\n" in shown.text
    disabled = mx_opt("bir", "encode", K36, "--no-saturation")
    assert disabled.stdout[:2] == b"\xe3\x11"


def test_disasm_of_what_is_no_word() -> None:
    result = mx_opt("bir", "disasm", "-", stdin=bytes.fromhex(PLAIN_HEX)[:-1])
    assert (result.status, result.stderr) == (
        1,
        "mx-opt: there are 63 bytes, wanted a multiple of 64: words are 64 bytes\n",
    )


def test_encode_wants_one_function(two_functions: Path) -> None:
    result = mx_opt("bir", "encode", two_functions)
    names = ", ".join(f"sg000{i}" for i in range(6))
    assert (result.status, result.stderr) == (
        2,
        f"mx-opt: {two_functions} has the functions {names}; choose one with --function\n",
    )
    assert len(mx_opt("bir", "encode", two_functions, "--function=sg0003").stdout) == 64


def test_draw(two_functions: Path, tmp_path: Path) -> None:
    picture = tmp_path / "tile.svg"
    result = mx_opt("bir", "draw", two_functions, "-o", picture)
    assert (result.status, result.text) == (0, f"sg0000 of 6; --function chooses another -> {picture}\n")
    assert "sg0000: x.1 bfloat16[2, 8, 64]" in picture.read_text()


def test_pictures_need_matplotlib(tmp_path: Path) -> None:
    with mock.patch.dict(sys.modules, {"lowering.bir.draw": None}):
        result = mx_opt("bir", "draw", K36, "-o", tmp_path / "tile.svg")
    assert result.status == 1
    assert result.stderr.startswith("mx-opt: pictures need matplotlib, which is not here (")
    assert result.stderr.endswith("); install jax-mx[draw]\n")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "mx-opt: -o names no picture\n"),
        (("-o", "-"), 2, "mx-opt: -o is -, which is standard output; name a file\n"),
        (("-o", "tile.pdf"), 1, "mx-opt: the picture's suffix is .pdf, wanted .svg or .png\n"),
        (("-o", "tile.svg", "--limit=0"), 2, "mx-opt: --limit is 0, wanted 1 or more\n"),
    ],
)
def test_draw_arguments(arguments: tuple[str, ...], status: int, message: str) -> None:
    result = mx_opt("bir", "draw", K36, *arguments)
    assert result.status == status
    assert result.stderr.startswith(message)
    assert not Path("tile.svg").exists()

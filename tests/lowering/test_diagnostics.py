"""The table of this project's codes says what the code does."""

import json
import re
from pathlib import Path

import lowering
from lowering import read_module
from lowering.diagnostics import MX_CODES, shorten
from lowering.explaining import explain_module
from tests.lowering.tools import stablehlo

SOURCES = Path(lowering.__file__).parent


def test_every_code_is_in_the_table_and_used() -> None:
    uses = [
        code
        for path in SOURCES.rglob("*.py")
        if path.name != "diagnostics.py"
        for code in re.findall(r"[\"'](MX\d+)[\"']", path.read_text())
    ]
    assert set(uses) == set(MX_CODES)
    assert all(re.fullmatch(r"MX\d{3}", code) for code in MX_CODES)
    assert list(MX_CODES) == sorted(MX_CODES)


def test_causes_are_short_whatever_the_module_says() -> None:
    assert shorten("x" * 60) == "x" * 60
    assert shorten("x" * 61) == "x" * 60 + "... (61 characters)"
    assert shorten("a\ud800b") == "a\\ud800b"
    assert shorten([1, "b"]) == "1, b"
    assert shorten(["k"] * 300_000, "; ") == "; ".join(["k"] * 16) + "; ... (300000 in all)"
    long = "x" * 10_000_000
    for config in (
        {"dtype": long},
        {"scale_method": long},
        {long: 1},
        {str(n): 1 for n in range(300_000)},
        {"dim": "\ud800", "\ud800": 1},
    ):
        module = read_module(stablehlo(json.dumps(config)))
        for diagnostic in explain_module(module):
            assert len(str(diagnostic).encode()) < 1000

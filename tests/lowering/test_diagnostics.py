"""The table of this project's codes says what the code does."""

import re
from pathlib import Path

import lowering
from lowering.diagnostics import MX_CODES

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

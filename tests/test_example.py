"""The main job, as `make demo` runs it: what it prints and what it writes."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def test_transformer_block(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "examples/transformer_mlp.py", f"--out={tmp_path}"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    rows = re.findall(r"^(float\w+) +(\w+) +([\d.]+) dB +([\d.]+) dB", printed, re.MULTILINE)
    assert len(rows) == 6
    output = {(dtype, rule): float(decibels) for dtype, rule, decibels, _ in rows}
    # Each mantissa bit is worth about 6 dB, so the formats are far apart and in this order.
    assert output["float8_e4m3fn", "EMAX"] > output["float8_e5m2", "EMAX"] + 2 > output["float4_e2m1fn", "EMAX"] + 6
    assert all(decibels > 15 for decibels in output.values())

    assert "before: 10 calls" in printed
    assert "after legalize-quantize-mx: 10 calls" in printed
    assert (tmp_path / "block.hlo").read_text().count('custom_call_target="QuantizeMX"') == 10
    assert (tmp_path / "block.legalized.hlo").read_text().count('custom_call_target="QuantizeMX_bf16_e4m3fn"') == 10

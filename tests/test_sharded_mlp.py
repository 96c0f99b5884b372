"""The sharded MLP, as a user runs it: what it holds, what it communicates, and that its result is one device's."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def test_tensor_and_data_parallel_mlp() -> None:
    command = [sys.executable, "examples/sharded_mlp.py"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    row = r"^(float\w+) +(\d+) KiB +(\d+) KiB +([\d.]+) dB +(\d+)  (.+)$"
    rows = {dtype: rest for dtype, *rest in re.findall(row, printed, re.MULTILINE)}
    assert set(rows) == {"float8_e4m3fn", "float4_e2m1fn"}
    for whole, piece, snr, differ, sent in rows.values():
        assert int(piece) * 4 == int(whole)  # four devices along the axis that shards weights
        assert float(snr) > 12
        assert int(differ) <= 64 * 512 // 100  # one in a hundred bfloat16 results may round otherwise
        assert sent == "1 all-reduce"
    # A weight of 2 x 512 x 2048 elements: codes, and a scale byte for each 32.
    assert int(rows["float8_e4m3fn"][0]) * 2**10 == 2 * 512 * 2048 * (1 + 1 / 32)
    assert int(rows["float4_e2m1fn"][0]) * 2**10 == 2 * 512 * 2048 * (1 / 2 + 1 / 32)

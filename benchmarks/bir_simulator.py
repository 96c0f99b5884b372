"""Speed of the BIR simulator on one core: elements per second of lowered quantize calls, checks included.

    python -m benchmarks.bir_simulator

Each row runs one lowered call from DRAM to DRAM several times and prints the best and the median. What is measured is
`simulate` as users call it: verification, hazard tracking, copies and the quantize itself.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time

# One core: NumPy's own thread pools would only be used by matrix products, but a bound is a bound.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import numpy as np

from lowering.bir import LegalizedCall, lower_calls, simulate

CALLS = (
    LegalizedCall((4096, 1024), "bfloat16", "float8_e4m3fn"),
    LegalizedCall((4096, 1024), "float16", "float8_e5m2"),
    LegalizedCall((4096, 1024), "bfloat16", "float4_e2m1fn"),
    LegalizedCall((8, 1024, 512), "bfloat16", "float8_e4m3fn", axis=-2),
    LegalizedCall((4096, 1060), "bfloat16", "float8_e4m3fn"),
    LegalizedCall((16384, 2048), "bfloat16", "float8_e4m3fn"),
)
REPEATS = 5


def main() -> None:
    print(
        f"{platform.machine()}, {platform.system()}, Python {sys.version.split()[0]}, NumPy {np.__version__}, one core"
    )
    print(f"{'operand':<24}{'result':<16}{'axis':>5}{'instructions':>14}{'best M el/s':>13}{'median M el/s':>15}")
    random = np.random.default_rng(0)
    for call in CALLS:
        module = lower_calls([call])
        values = random.standard_normal(call.shape).astype(np.float32)
        bits = values.astype(np.float16).view(np.uint16)
        if call.element_type == "bfloat16":
            bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            simulate(module, {"x": bits}, allow_fp4=True)
            seconds.append(time.perf_counter() - start)
        best, median = (bits.size / value / 1e6 for value in (min(seconds), statistics.median(seconds)))
        operand = f"{call.element_type}{list(call.shape)}"
        count = len(list(module.functions[0].instructions()))
        print(f"{operand:<24}{call.dtype:<16}{call.axis:>5}{count:>14}{best:>13.1f}{median:>15.1f}")


if __name__ == "__main__":
    main()

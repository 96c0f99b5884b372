"""Interleaved timing: every contender runs once per round, so that a busy moment of the machine hits all of them."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jaxlib
import numpy as np


def interleaved_medians(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each run. Every run is called once before, for compilation and warm memory."""
    for run in runs.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def environment() -> str:
    """Machine and versions: what a figure means nothing without."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123 - no file of ours
            cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), cpu)
    except OSError:
        pass  # not Linux: the plain name has to do
    return (
        f"{cpu}, {len(jax.devices())} {jax.devices()[0].platform} device(s), Python {platform.python_version()}, "
        f"jax {jax.__version__}, jaxlib {jaxlib.__version__}, numpy {np.__version__}"
    )

"""`quantize_mx` beside other libraries and beside a copy, on the CPUs of this machine.

    make bench-peers        or, in an environment that has the peers:
    python -m benchmarks.peers [--rounds=15] [--sizes=4096x4096,8192x8192] [--memory=fresh] [--chart=out/peers.png]

All contenders run in one process, in turn within every round, so that a busy moment of the machine hits all of them; a
figure is the median over the rounds. What to compare are the ratios within one table. Results lie in memory that is
new from the system (`fresh`) or was freed before (`reused`), the same for all contenders.
"""

import pathlib
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
from absl import app, flags

from benchmarks.allocator import Memory, use_memory
from benchmarks.contenders import FORMATS, dequantizers, quantizers, versions
from benchmarks.timing import environment, interleaved_medians

_ROUNDS = flags.DEFINE_integer("rounds", 15, "Interleaved rounds of which the median is taken.", lower_bound=1)
_SIZES = flags.DEFINE_list("sizes", ["4096x4096", "8192x8192"], "Shapes of the bfloat16 input.")
_MEMORY = flags.DEFINE_enum_class("memory", Memory.FRESH, Memory, "What results lie in.")
_CHART = flags.DEFINE_string("chart", "out/peers.png", "Where the bar chart of the first size is written.")

_OURS, _COPY = "jax_mx native", "copy"


def print_table(title: str, seconds: Mapping[str, float]) -> None:
    """One contender a line: milliseconds, and how many times our time and the copy's time that is."""
    print(f"\n{title}\n{'':20}{'ms':>9}{'x ours':>9}{'x copy':>9}")
    for name, value in seconds.items():
        print(f"{name:20}{1e3 * value:9.2f}{value / seconds[_OURS]:9.1f}{value / seconds[_COPY]:9.2f}")


def draw(path: pathlib.Path, results: Mapping[str, Mapping[str, float]], title: str) -> None:
    """Writes a bar chart: one group of bars a format."""
    figure, axes = plt.subplots(1, len(results), figsize=(4.5 * len(results), 4), layout="constrained")
    for axis, (fmt, seconds) in zip(axes, results.items(), strict=True):
        names = list(seconds)[::-1]
        colors = ["#c44e52" if name.startswith("jax_mx") else "#9a9a9a" for name in names]
        bars = axis.barh(names, [1e3 * seconds[name] for name in names], color=colors)
        axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
        axis.set(title=fmt, xlabel="milliseconds, log scale", xscale="log")
        axis.margins(x=0.2)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    figure.savefig(unfinished, format=path.suffix.removeprefix(".") or "png", dpi=120)
    unfinished.replace(path)


def main(argv: Sequence[str]) -> None:
    """Prints the tables and writes the chart."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    use_memory(_MEMORY.value)
    jax.config.update("jax_platforms", "cpu")
    print(f"{environment()}\n{versions()}\n{_MEMORY.value} memory, median of {_ROUNDS.value} interleaved rounds")
    charted: dict[str, dict[str, float]] = {}
    for size in _SIZES.value:
        shape = tuple(int(length) for length in size.split("x"))
        x = jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)
        for fmt in FORMATS:
            seconds = interleaved_medians(quantizers(x, fmt), _ROUNDS.value)
            print_table(f"quantize {size} bfloat16 to {fmt}", seconds)
            if size == _SIZES.value[0]:
                charted[fmt] = seconds
        for fmt in FORMATS:
            for out_dtype in ("bfloat16", "float32"):
                seconds = interleaved_medians(dequantizers(x, fmt, out_dtype), _ROUNDS.value)
                print_table(f"dequantize {size} {fmt} to {out_dtype}", seconds)
    draw(pathlib.Path(_CHART.value), charted, f"quantize {_SIZES.value[0]} bfloat16, {environment().split(',')[0]}")
    print(f"\nwrote {_CHART.value}")


if __name__ == "__main__":
    app.run(main)

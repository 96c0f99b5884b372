"""How the cost of a sharded `quantize_mx` grows: 1 to 8 devices, 1 to 64 million elements, as a table and a picture.

    python -m benchmarks.scaling [--rounds=15] [--cores=1] [--out=out/scaling.svg]

The devices are made on the CPU and share its cores, so the time is that of the whole array whatever the number of
devices; what is looked for is that the time for one element stays the same. On one core it is the work that is timed;
on more (`--cores=0` takes all), also what the threads of so many devices wait for each other, which weighs on small
arrays. It is the time of a call, less that of the same call for one row, which is what jax takes to start it on so many
devices. All sizes and meshes are run in turn, in one process, and the best time of each counts, so that a busy moment
of the machine spoils none. One device, too, takes what XLA compiles, as several do, and not the native kernels.
"""

import math
import os
import pathlib
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import matplotlib
from absl import app, flags
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from matplotlib.figure import Figure

import jax_mx
from benchmarks.allocator import Memory, use_memory
from benchmarks.timing import environment

DEVICES = (1, 2, 4, 8)
MILLIONS = (1, 2, 4, 8, 16, 32, 64)
COLUMNS = 4096
SHORT_CALL = 1 << 23
"""Elements below which a call is repeated within a round: it is over before the machine has a quiet moment."""
MILLION = 1 << 20

_ROUNDS = flags.DEFINE_integer("rounds", 15, "Interleaved rounds of which the best counts.", lower_bound=1)
_CORES = flags.DEFINE_integer("cores", 1, "Cores of the CPU to use, 0 for all.", lower_bound=0)
_OUT = flags.DEFINE_string("out", "out/scaling.svg", "Where the picture goes.")

Times = dict[tuple[int, int], float]
"""By number of devices and number of rows."""


def rows_of(millions: int) -> int:
    """Rows that make so many million elements."""
    return millions * MILLION // COLUMNS


def sharded_input(devices: int, rows: int) -> jax.Array:
    """bfloat16[rows, COLUMNS], the quantized axis over the devices."""
    mesh = jax.make_mesh((devices,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    sharding = NamedSharding(mesh, PartitionSpec(None, "d"))
    make = jax.jit(lambda key: jax.random.normal(key, (rows, COLUMNS), jnp.bfloat16), out_shardings=sharding)
    return make(jax.random.key(0))


def use_cores(count: int) -> int:
    """Keeps this process to so many cores, 0 for all, where the system can; returns how many it has then."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[: count or len(allowed)])  # jax starts its threads later, and they inherit it
    return len(os.sched_getaffinity(0))


def best_seconds(rounds: int) -> Times:
    """The best time of a call for every size and one row, on every number of devices."""
    quantize = jax.jit(jax_mx.quantize_mx)
    inputs = {(d, rows): sharded_input(d, rows) for d in DEVICES for rows in (1, *map(rows_of, MILLIONS))}
    best = dict.fromkeys(inputs, math.inf)
    for x in inputs.values():
        jax.block_until_ready(quantize(x))
    for _ in range(rounds):
        for key, x in inputs.items():
            for _ in range(min(16, max(1, SHORT_CALL // x.size))):
                start = time.perf_counter()
                jax.block_until_ready(quantize(x))
                best[key] = min(best[key], time.perf_counter() - start)
    return best


def per_element(seconds: Times) -> Times:
    """Nanoseconds an element, by number of devices and millions of elements."""
    return {
        (d, millions): 1e9 * (seconds[d, rows_of(millions)] - seconds[d, 1]) / (millions * MILLION)
        for d in DEVICES
        for millions in MILLIONS
    }


def draw(times: Times, path: pathlib.Path, caption: str) -> None:
    """One line for each number of devices."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for devices in DEVICES:
        label = f"{devices} device" if devices == 1 else f"{devices} devices"
        axes.plot(MILLIONS, [times[devices, millions] for millions in MILLIONS], marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(MILLIONS, [str(millions) for millions in MILLIONS])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("elements, in units of $2^{20}$")
    axes.set_ylabel("nanoseconds for one element")
    axes.set_title(caption, fontsize=7)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date and with fixed identifiers, the same times make the same file.
    with matplotlib.rc_context({"svg.hashsalt": "scaling"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main(argv: Sequence[str]) -> None:
    """Prints the table and writes the picture."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    cores = use_cores(_CORES.value)
    print(environment())
    print(f"{cores} core(s), best of {_ROUNDS.value} rounds")
    print("nanoseconds for one element, less the time of a call for one row\n")
    with jax_mx.config.use_implementation("xla"):
        seconds = best_seconds(_ROUNDS.value)
    times = per_element(seconds)
    header = f"{'devices':>8}{'one row':>10}" + "".join(f"{millions:>7}M" for millions in MILLIONS)
    header += f"{'largest / smallest':>20}"
    print(f"{header}\n{'-' * len(header)}")
    for devices in DEVICES:
        row = [times[devices, millions] for millions in MILLIONS]
        values = "".join(f"{value:8.3f}" for value in row)
        print(f"{devices:>8}{1e6 * seconds[devices, 1]:7.0f} us{values}{max(row) / min(row):20.2f}")
    spread = max(times.values()) / min(times.values())
    print(f"\nlargest of all over smallest of all: {spread:.2f}")
    draw(times, pathlib.Path(_OUT.value), environment())
    print(f"wrote {_OUT.value}")


if __name__ == "__main__":
    use_memory(Memory.REUSED)  # else the larger sizes pay for clearing new pages and the smaller ones do not
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    app.run(main)

"""How the cost of a sharded `quantize_mx` grows: 1 to 8 devices, 1 to 64 million elements, as a table and a picture.

    python -m benchmarks.scaling [--rounds=7] [--out=out/scaling.svg]

The devices are made on the CPU and share its cores, so the time is that of the whole array whatever the number of
devices; what is looked for is that the time for one element stays the same. All sizes and meshes are run in turn, in
one process, so that a busy moment of the machine hits all of them.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import matplotlib
from absl import app, flags
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from matplotlib.figure import Figure

import jax_mx
from benchmarks.timing import environment, interleaved_medians

DEVICES = (1, 2, 4, 8)
MILLIONS = (1, 4, 16, 64)
COLUMNS = 4096
MILLION = 1 << 20

_ROUNDS = flags.DEFINE_integer("rounds", 7, "Interleaved rounds of which the median is taken.", lower_bound=1)
_OUT = flags.DEFINE_string("out", "out/scaling.svg", "Where the picture goes.")

Times = Mapping[tuple[int, int], float]
"""Nanoseconds an element, by number of devices and millions of elements."""


def sharded_input(devices: int, millions: int) -> jax.Array:
    """bfloat16[rows, COLUMNS], the quantized axis over the devices."""
    mesh = jax.make_mesh((devices,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    sharding = NamedSharding(mesh, PartitionSpec(None, "d"))
    shape = (millions * MILLION // COLUMNS, COLUMNS)
    return jax.jit(lambda key: jax.random.normal(key, shape, jnp.bfloat16), out_shardings=sharding)(jax.random.key(0))


def measure(rounds: int) -> Times:
    """The time of every size on every number of devices."""
    quantize = jax.jit(jax_mx.quantize_mx)
    runs = {
        f"{devices} {millions}": functools.partial(quantize, sharded_input(devices, millions))
        for devices in DEVICES
        for millions in MILLIONS
    }
    seconds = interleaved_medians(runs, rounds)
    return {(d, m): 1e9 * seconds[f"{d} {m}"] / (m * MILLION) for d in DEVICES for m in MILLIONS}


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
    print(environment())
    print(f"nanoseconds for one element, median of {_ROUNDS.value} interleaved rounds\n")
    times = measure(_ROUNDS.value)
    header = f"{'devices':>8}" + "".join(f"{millions:>7}M" for millions in MILLIONS) + f"{'largest / smallest':>20}"
    print(f"{header}\n{'-' * len(header)}")
    for devices in DEVICES:
        row = [times[devices, millions] for millions in MILLIONS]
        print(f"{devices:>8}" + "".join(f"{value:8.3f}" for value in row) + f"{max(row) / min(row):20.2f}")
    spread = max(times.values()) / min(times.values())
    print(f"\nlargest of all over smallest of all: {spread:.2f}")
    draw(times, pathlib.Path(_OUT.value), environment())
    print(f"wrote {_OUT.value}")


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    app.run(main)

"""Throughput of jitted `quantize_mx` beside what a user would write in jnp, and beside a copy of the input.

    python -m benchmarks.quantize [--rounds=15] [--sizes=512x1024,4096x4096,8192x8192]

Absolute times are those of one machine at one moment; the ratios within a row are what to compare.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import jax_mx
from benchmarks.plain import plain_jnp
from benchmarks.timing import environment, interleaved_medians

FORMATS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")

_ROUNDS = flags.DEFINE_integer("rounds", 15, "Interleaved rounds of which the median is taken.", lower_bound=1)
_SIZES = flags.DEFINE_list("sizes", ["512x1024", "4096x4096", "8192x8192"], "Shapes of the bfloat16 input.")


def measure(shape: tuple[int, ...], rounds: int) -> list[tuple[str, float, float, float]]:
    """Rows of (format, seconds of ours, of plain jnp, of a copy) for one shape."""
    x = jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)
    host = np.asarray(x)
    copied = np.empty_like(host)
    rows = []
    for fmt in FORMATS:
        runs = {
            "ours": functools.partial(jax.jit(functools.partial(jax_mx.quantize_mx, dtype=fmt)), x),
            "plain": functools.partial(jax.jit(functools.partial(plain_jnp, dtype=fmt)), x),
            "copy": functools.partial(np.copyto, copied, host),
        }
        seconds = interleaved_medians(runs, rounds)
        rows.append((fmt, seconds["ours"], seconds["plain"], seconds["copy"]))
    return rows


def main(argv: Sequence[str]) -> None:
    """Prints one table."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    print(environment())
    print(f"median of {_ROUNDS.value} interleaved rounds, milliseconds\n")
    header = f"{'shape':>10}  {'format':<14}{'quantize_mx':>12}{'plain jnp':>11}{'copyto':>9}"
    header += f"{'faster than jnp':>17}{'x copy':>8}"
    print(header)
    print("-" * len(header))
    for size in _SIZES.value:
        shape = tuple(int(length) for length in size.split("x"))
        for fmt, ours, plain, copy in measure(shape, _ROUNDS.value):
            print(
                f"{size:>10}  {fmt:<14}{1e3 * ours:12.2f}{1e3 * plain:11.2f}{1e3 * copy:9.2f}"
                f"{plain / ours:16.1f}x{ours / copy:8.1f}"
            )


if __name__ == "__main__":
    app.run(main)

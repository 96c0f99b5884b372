"""Time of the passes beside what jaxlib needs to parse and print the same module, for 10 to 10,000 MX calls.

    python benchmarks/passes.py [--calls 10,100,1000,10000] [--repeats 5]

Each row is the median of interleaved runs. `passes` validates and rewrites; `parse + print` reads the text into
jaxlib's MLIR bindings and prints it again, locations included, as `mx-opt` does. The time per call stays flat: passes
are linear.
"""

import argparse
import platform
import resource
import statistics
import sys
import time
from pathlib import Path

import jax
import jaxlib

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hlo_fixtures import large_model
from lowering import LegalizeQuantizeMx, LegalizeScaledMatmul, _compat, read_module, run_passes

CALLS_PER_LAYER = 8


def make_module(calls: int) -> str:
    """Returns a transformer with at least this many quantize calls, and half as many products, as JAX lowers it."""
    layers = max(1, round(calls / CALLS_PER_LAYER))
    x, (weights, *_), _ = large_model.arguments()

    def model(x: jax.Array, layers: list[large_model.Weights]) -> jax.Array:
        for weights in layers:
            x = large_model.layer(x, weights)
        return x

    lowered = jax.jit(model).trace(x, [weights] * layers).lower(lowering_platforms=("neuron",))
    return lowered.as_text(debug_info=True)


def time_passes(text: str) -> float:
    """Returns the seconds both passes take, reading not included."""
    module = read_module(text)
    started = time.perf_counter()
    run_passes(module, [LegalizeQuantizeMx(), LegalizeScaledMatmul()])
    return time.perf_counter() - started


def time_jaxlib(text: str) -> float:
    """Returns the seconds jaxlib takes to parse and print the module."""
    started = time.perf_counter()
    with _compat.new_context():
        _compat.ir.Module.parse(text).operation.get_asm(enable_debug_info=True)
    return time.perf_counter() - started


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", default="10,100,1000,10000")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(
        f"{platform.machine()}, Python {platform.python_version()}, jax {jax.__version__}, jaxlib {jaxlib.__version__}"
    )
    print(
        f"{'calls':>6}  {'passes ms':>10}  {'parse + print ms':>17}  {'ratio':>6}  {'us per call':>11}  {'peak MiB':>8}"
    )
    time_passes(make_module(1)), time_jaxlib(make_module(1))  # the first run of all loads code
    for calls in map(int, arguments.calls.split(",")):
        text = make_module(calls)
        runs = [(time_passes(text), time_jaxlib(text)) for _ in range(arguments.repeats)]
        passes, jaxlib_time = (statistics.median(column) for column in zip(*runs, strict=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        calls = text.count("@QuantizeMX(")
        print(
            f"{calls:6}  {passes * 1e3:10.2f}  {jaxlib_time * 1e3:17.2f}  {passes / jaxlib_time:6.2f}  "
            f"{passes / calls * 1e6:11.1f}  {peak:8.0f}"
        )


if __name__ == "__main__":
    main()

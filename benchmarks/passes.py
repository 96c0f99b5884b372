"""Time of the passes beside what jaxlib needs to parse and print the same module, for 10 to 10,000 QuantizeMX calls.

    python -m benchmarks.passes [--calls=10,100,1000,10000] [--rounds=7]

Two kinds of module: `transformer`, layers as JAX lowers them with source locations, and `dense`, in which every other
operation is a call, without locations, the worst case for the passes. Each row is the median of interleaved runs.
`passes` validates, rewrites and verifies; `parse + print` reads the text into jaxlib's MLIR bindings and prints it
again, locations included, as `mx-opt` does. The time per call stays flat: passes are linear.
"""

import resource
import statistics
import time
from collections.abc import Callable, Sequence

import jax
from absl import app, flags

import jax_mx
from benchmarks.timing import environment
from hlo_fixtures import large_model
from lowering import LegalizeQuantizeMx, LegalizeScaledMatmul, _compat, read_module, run_passes

_CALLS = flags.DEFINE_list("calls", ["10", "100", "1000", "10000"], "Numbers of QuantizeMX calls.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Interleaved rounds of which the median is taken.", lower_bound=1)
_CALLS_PER_LAYER = 8


def transformer(calls: int) -> str:
    """Layers with 8 calls and 4 products each, as JAX lowers them, then as many single calls as are missing."""
    layers, single = divmod(calls, _CALLS_PER_LAYER)
    x, (weights, *_), _ = large_model.arguments()

    def model(x: jax.Array, layers: list[large_model.Weights]) -> jax.Array:
        for weights in layers:
            x = large_model.layer(x, weights)
        for _ in range(single):
            x = jax_mx.dequantize_mx(*jax_mx.quantize_mx(x, "float8_e5m2"), "float8_e5m2", out_dtype=x.dtype)
        return x

    lowered = jax.jit(model).trace(x, [weights] * layers).lower(lowering_platforms=("neuron",))
    return lowered.as_text(debug_info=True)


def dense(calls: int) -> str:
    """A chain of additions, each with a call on its result."""
    config = r"{\22block_size\22:32,\22dim\22:1,\22dtype\22:\22float8_e4m3fn\22,\22scale_method\22:\22EMAX\22}"
    attributes = f'{{api_version = 1 : i32, backend_config = "{config}"}}'
    lines = [
        f"%x{i + 1} = stablehlo.add %x{i}, %x{i} : tensor<4x64xbf16>\n"
        f"%q{i}:2 = stablehlo.custom_call @QuantizeMX(%x{i + 1}) {attributes} : "
        "(tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)\n"
        for i in range(calls)
    ]
    signature = "@main(%x0: tensor<4x64xbf16>) -> tensor<4x64xbf16>"
    return f"func.func {signature} {{\n{''.join(lines)}return %x{calls} : tensor<4x64xbf16>\n}}\n"


KINDS: dict[str, Callable[[int], str]] = {"dense": dense, "transformer": transformer}


def time_passes(text: str) -> float:
    """Seconds that both passes take; reading is not included."""
    module = read_module(text)
    start = time.perf_counter()
    run_passes(module, [LegalizeQuantizeMx(), LegalizeScaledMatmul()])
    return time.perf_counter() - start


def time_jaxlib(text: str) -> float:
    """Seconds that jaxlib takes to parse and print the module."""
    start = time.perf_counter()
    with _compat.new_context():
        _compat.ir.Module.parse(text).operation.get_asm(enable_debug_info=True)
    return time.perf_counter() - start


def main(argv: Sequence[str]) -> None:
    """Prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    jax.config.update("jax_platforms", "cpu")
    print(f"{environment()}\nmedian of {_ROUNDS.value} interleaved rounds\n")
    header = f"{'module':<12}{'calls':>7}{'passes ms':>11}{'parse + print ms':>18}{'ratio':>7}{'us a call':>11}"
    header += f"{'peak MiB':>10}"
    print(f"{header}\n{'-' * len(header)}")
    for kind, make in KINDS.items():
        time_passes(make(1)), time_jaxlib(make(1))  # the first run of all loads code
        for calls in map(int, _CALLS.value):
            text = make(calls)
            runs = [(time_passes(text), time_jaxlib(text)) for _ in range(_ROUNDS.value)]
            passes, jaxlib_time = (statistics.median(column) for column in zip(*runs, strict=True))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found = text.count("@QuantizeMX(")
            print(
                f"{kind:<12}{found:7}{1e3 * passes:11.2f}{1e3 * jaxlib_time:18.2f}{passes / jaxlib_time:7.2f}"
                f"{1e6 * passes / found:11.1f}{peak:10.0f}"
            )


if __name__ == "__main__":
    app.run(main)

"""What `jax_mx` costs beside its kernels: a call's overhead, compile time and import time, on the CPU.

    python -m benchmarks.latency [--rounds=21]

The overhead of a call is the time of a jitted function with one quantization and one dequantization of 512x1024
bfloat16, less what each further pair in the same function adds.
"""

import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from absl import app, flags

import jax_mx
from benchmarks.timing import environment, interleaved_medians

_ROUNDS = flags.DEFINE_integer("rounds", 21, "Rounds of which the median is taken.", lower_bound=1)
_PAIRS = 11
_IMPORTS = {
    "jax alone": "import jax, jax.export, jax.numpy",
    "jax and jax_mx": "import jax, jax.export, jax.numpy, jax_mx",
}


def chain(pairs: int) -> Callable[[jax.Array], jax.Array]:
    """A jitted function of so many quantizations, each of what the one before it gave."""

    def f(x: jax.Array) -> jax.Array:
        for _ in range(pairs):
            x = jax_mx.fake_quantize_mx(x)
        return x

    return jax.jit(f)


def measure_overhead(rounds: int) -> tuple[float, float]:
    """Seconds of one pair of kernels, and of the call around it."""
    x = jax.random.normal(jax.random.key(0), (512, 1024), jnp.bfloat16)
    functions = {pairs: chain(pairs) for pairs in (1, _PAIRS)}
    runs = {str(pairs): functools.partial(f, x) for pairs, f in functions.items()}
    medians = interleaved_medians(runs, 10 * rounds)
    pair = (medians[str(_PAIRS)] - medians["1"]) / (_PAIRS - 1)
    return pair, medians["1"] - pair


def measure_compilation(implementation: Any, rounds: int) -> float:
    """Median seconds to trace, lower and compile `quantize_mx`, for a new shape each time."""
    seconds = []
    with jax_mx.config.use_implementation(implementation):
        for round_ in range(rounds + 1):
            start = time.perf_counter()
            jax.jit(jax_mx.quantize_mx).lower(jax.ShapeDtypeStruct((512 + round_, 1024), jnp.bfloat16)).compile()
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def measure_imports(rounds: int) -> dict[str, float]:
    """Median seconds of a new Python process that imports jax, without and with jax_mx."""

    def start(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    return interleaved_medians({name: functools.partial(start, code) for name, code in _IMPORTS.items()}, rounds)


def main(argv: Sequence[str]) -> None:
    """Prints the figures."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    jax.config.update("jax_platforms", "cpu")
    print(f"{environment()}\n{jax_mx.implementation()}")
    pair, overhead = measure_overhead(_ROUNDS.value)
    print(
        f"512x1024 quantize and dequantize: {1e6 * pair:.0f} us, and {1e6 * overhead:.0f} us for the call around them"
    )
    for name in ("native", "xla") if jax_mx.implementation().name == "native" else ("xla",):
        print(f"trace, lower and compile quantize_mx, {name}: {1e3 * measure_compilation(name, _ROUNDS.value):.0f} ms")
    imports = measure_imports(max(3, _ROUNDS.value // 3))
    alone, both = (imports[name] for name in _IMPORTS)
    print(f"import: {1e3 * alone:.0f} ms for jax, {1e3 * (both - alone):+.0f} ms for jax_mx")


if __name__ == "__main__":
    app.run(main)

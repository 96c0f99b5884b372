"""Peak memory of quantizing a large array: in one call, and in chunks from host memory.

    python -m benchmarks.memory [--gib=4] [--chunks=64]

Each way runs in a process of its own, which reports how far its peak resident set rose after everything was imported
and compiled. That is compared with what must be held: the input and the output.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import jax_mx
from benchmarks.timing import environment

COLUMNS = 4096
ALLOWED = 1.05
"""Peak over input and output that the table calls good."""

_GIB = flags.DEFINE_float("gib", 4, "Size of the bfloat16 input in GiB.", lower_bound=0.01)
_CHUNKS = flags.DEFINE_integer("chunks", 64, "Chunks that the input is cut into.", lower_bound=1)
_FORMAT = flags.DEFINE_string("format", "float8_e4m3fn", "Element format.")
_WAY = flags.DEFINE_string("way", "", "Runs one way in this process and prints its figures; for the command itself.")


def quantize(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All of it in one call."""
    return jax_mx.quantize_mx(x, _FORMAT.value)


def quantize_from_host(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One chunk of rows after another, from host memory into host memory: the device holds one chunk."""
    shapes = jax.eval_shape(quantize, x)
    data, scale = (np.empty(shape.shape, shape.dtype) for shape in shapes)
    step = len(x) // _CHUNKS.value
    quantize_chunk = jax.jit(quantize)
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        data[rows], scale[rows] = quantize_chunk(x[rows])
    return data, scale


def any_bits(rows: int) -> jax.Array:
    """bfloat16 of many magnitudes, made in place: [rows, COLUMNS]."""
    row, column = (jax.lax.broadcasted_iota(jnp.uint32, (rows, COLUMNS), axis) for axis in (0, 1))
    bits = ((row * 40503 + column) * jnp.uint32(2654435761)) >> 16
    return jax.lax.bitcast_convert_type(bits.astype(jnp.uint16), jnp.bfloat16)


def peak_bytes() -> int:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(way: str, rows: int) -> tuple[int, int]:
    """Bytes of input and output together, and by how much the peak rose while making and quantizing the input."""
    shape = jax.ShapeDtypeStruct((rows, COLUMNS), jnp.bfloat16)
    make = jax.jit(any_bits, static_argnums=0)
    if way == "host":
        chunk = np.asarray(make(rows // _CHUNKS.value))
        jax.block_until_ready(jax.jit(quantize)(chunk))
        before = peak_bytes()
        x = np.empty(shape.shape, shape.dtype)
        x.reshape(_CHUNKS.value, -1, COLUMNS)[:] = chunk
        outputs = quantize_from_host(x)
        return x.nbytes + sum(result.nbytes for result in outputs), peak_bytes() - before
    generate = make.lower(rows).compile()
    compiled = jax.jit(quantize).lower(shape).compile()
    before = peak_bytes()
    array = generate()
    results = jax.block_until_ready(compiled(array))
    return array.nbytes + sum(result.nbytes for result in results), peak_bytes() - before


def main(argv: Sequence[str]) -> None:
    """Prints one row for each way."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    rows = int(_GIB.value * 2**30) // (2 * COLUMNS) // _CHUNKS.value * _CHUNKS.value
    if rows == 0:
        raise app.UsageError(f"--gib={_GIB.value} is less than one row a chunk; use fewer --chunks or more --gib")
    if _WAY.value:
        print(*measure(_WAY.value, rows))
        return
    print(environment())
    print(f"bfloat16[{rows}, {COLUMNS}] to {_FORMAT.value}, {_CHUNKS.value} chunks, GiB\n")
    header = f"{'way':<12}{'input + output':>16}{'peak':>8}{'ratio':>8}"
    print(f"{header}\n{'-' * len(header)}")
    for way in ("whole", "host"):
        settings = (f"--gib={_GIB.value}", f"--chunks={_CHUNKS.value}", f"--format={_FORMAT.value}")
        command = [sys.executable, "-m", "benchmarks.memory", f"--way={way}", *settings]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        needed, peak = (int(word) for word in printed.split())
        verdict = "" if peak <= ALLOWED * needed else f"  more than {ALLOWED}"
        print(f"{way:<12}{needed / 2**30:16.2f}{peak / 2**30:8.2f}{peak / needed:8.3f}{verdict}")


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    app.run(main)

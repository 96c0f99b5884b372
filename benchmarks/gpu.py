"""The plain operations on a CUDA device: the same bits as on the CPU for every input, and how fast.

    python -m benchmarks.gpu [--size=16384] [--calls=30]

Every source pattern meets every exponent that can lead its block, in every format and under every rule; every code
meets every scale. Throughput is given in bytes read and written a second, and as a share of what a copy on the same
device reaches. `--device=cpu` runs it all on the CPU, to try the script itself.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import jax_mx
from benchmarks.timing import environment

_SIZE = flags.DEFINE_integer("size", 16384, "Side of the square bfloat16 input.", lower_bound=128)
_CALLS = flags.DEFINE_integer("calls", 30, "Calls in a row that are timed.", lower_bound=1)
_DEVICE = flags.DEFINE_enum("device", "gpu", ["gpu", "cpu"], "Platform to prove and measure.")

FORMATS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
RULES = (jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR)
SOURCES = (jnp.bfloat16, jnp.float16)
OUT_DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)


def every_block(source: Any) -> np.ndarray:
    """Blocks [leaders * rows, 32]: a leader of every exponent, and of NaN, with every pattern in turn beside it."""
    shift = 7 if source == jnp.bfloat16 else 10
    leaders = np.append(np.arange(0, 0x8000, 1 << shift), [0x0001, 0x7FFF]).astype(np.uint16)
    patterns = np.resize(np.arange(1 << 16, dtype=np.uint16), (-(-(1 << 16) // 31), 31))
    blocks = np.empty((leaders.size, len(patterns), 32), np.uint16)
    blocks[:, :, 0] = leaders[:, None]
    blocks[:, :, 1:] = patterns
    return blocks.reshape(-1, 32).view(np.dtype(source))


def count_differences(f: Callable[..., Any], device: Any, *args: np.ndarray) -> int:
    """How many bytes of f's results differ between the device and the CPU."""
    cpu = jax.local_devices(backend="cpu")[0]
    results = []
    for place in (device, cpu):
        placed = [jax.device_put(arg, place) for arg in args]
        results.append([np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(f)(*placed))])
    pairs = zip(*results, strict=True)
    return sum(int(np.count_nonzero(one.view(np.uint8) != other.view(np.uint8))) for one, other in pairs)


def prove(device: Any) -> int:
    """Compares everything; prints a line a format and returns the number of differing bytes."""
    total = 0
    for fmt in FORMATS:
        found = 0
        for source, rule, axis in itertools.product(SOURCES, RULES, (0, 1)):
            blocks = every_block(source) if axis == 1 else np.ascontiguousarray(every_block(source).T)
            found += count_differences(
                lambda x, fmt=fmt, rule=rule, axis=axis: jax_mx.quantize_mx(x, fmt, rule=rule, axis=axis),
                device,
                blocks,
            )
        data = np.resize(np.arange(1 << 16, dtype=np.uint16), (256, 1 << 17)).view(container_dtype(fmt))
        scale = np.repeat(np.arange(256, dtype=np.uint8)[:, None], data.shape[1] // 8, axis=1)
        for out_dtype in OUT_DTYPES:
            found += count_differences(
                lambda d, s, fmt=fmt, out=out_dtype: jax_mx.dequantize_mx(d, s, fmt, out_dtype=out), device, data, scale
            )
        print(f"{fmt:14} quantize, every pattern and leader; dequantize, every code and scale: {found} bytes differ")
        total += found
    return total


def container_dtype(fmt: str) -> Any:
    """The dtype of a format's containers."""
    return np.uint16 if fmt == "float4_e2m1fn" else np.uint32


def seconds_per_call(f: Callable[..., Any], *args: jax.Array) -> float:
    """Mean over calls in a row, of which only the last is waited for; the best of three runs."""
    compiled = jax.jit(f)
    jax.block_until_ready(compiled(*args))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(_CALLS.value):
            result = compiled(*args)
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - start) / _CALLS.value)
    return best


def measure(device: Any) -> None:
    """Prints a table of throughput."""
    x = jax.device_put(jax.random.normal(jax.random.key(0), (_SIZE.value, _SIZE.value), jnp.bfloat16), device)
    copy = 2 * x.nbytes / seconds_per_call(lambda x: -x, x)
    print(f"\n{_SIZE.value}x{_SIZE.value} bfloat16; a copy with the sign changed: {copy / 1e9:.0f} GB/s")
    print(f"{'':44}{'ms':>8}{'GB/s':>8}{'of copy':>9}")

    def report(name: str, moved: int, seconds: float) -> None:
        print(f"{name:44}{1e3 * seconds:8.3f}{moved / seconds / 1e9:8.0f}{moved / seconds / copy:9.0%}")

    for fmt, axis in itertools.product(FORMATS, (1, 0)):
        data, scale = jax.block_until_ready(jax_mx.quantize_mx(x, fmt, axis=axis))
        quantized = data.nbytes + scale.nbytes
        seconds = seconds_per_call(lambda x, fmt=fmt, axis=axis: jax_mx.quantize_mx(x, fmt, axis=axis), x)
        report(f"quantize to {fmt}, axis {axis}", x.nbytes + quantized, seconds)
        seconds = seconds_per_call(
            lambda d, s, fmt=fmt, axis=axis: jax_mx.dequantize_mx(d, s, fmt, axis=axis, out_dtype=jnp.bfloat16),
            data,
            scale,
        )
        report(f"dequantize {fmt} to bfloat16, axis {axis}", x.nbytes + quantized, seconds)


def main(argv: Sequence[str]) -> int:
    """Proves, then measures; 1 if any byte differs."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    try:
        device = jax.local_devices(backend=_DEVICE.value)[0]
    except RuntimeError:
        raise app.UsageError(f"no device of platform {_DEVICE.value!r}; jax has {jax.default_backend()}") from None
    print(f"{environment()}\n{device.device_kind}")
    # On the CPU the device's side must not be the native kernels: the plain operations are what is measured.
    with jax_mx.config.use_implementation("xla"), jax.default_device(device):
        differences = prove(device)
        measure(device)
    return 1 if differences else 0


if __name__ == "__main__":
    app.run(main)

"""Everything that `benchmarks.peers` times, each as a function from an array to a call that quantizes it.

Peers get their best case: input already in the dtype and framework they want, compiled where they can be, and as many
threads as there are CPUs. What a peer returns is what it would give a caller; only ours is in x4 containers.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
import torch._inductor.codegen.cpp as inductor
import torchao
from torchao.prototype.mx_formats.mx_tensor import to_mx

import jax_mx
from benchmarks.plain import plain_jnp

try:
    import ggml
except ImportError:  # not built for every platform
    ggml = None

FORMATS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

_TORCH_FORMATS: dict[str, Any] = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float4_e2m1fn": torch.float4_e2m1fn_x2,
}
_GGML_TYPE_MXFP4, _GGML_BLOCK_BYTES = 39, 17

# TorchInductor has no C++ name for E8M0 on the CPU and refuses to compile torchao without one.
inductor.DTYPE_TO_CPP.setdefault(torch.float8_e8m0fnu, "at::Float8_e8m0fnu")

Call = Callable[[], Any]
_pool = ThreadPoolExecutor(THREADS)


def versions() -> str:
    """Versions of the peers."""
    peers = [f"torch {torch.__version__}", f"torchao {torchao.__version__}", f"ml_dtypes {ml_dtypes.__version__}"]
    if ggml is not None:
        peers.append(f"ggml-py {ggml.__version__}")
    return f"{', '.join(peers)}, {THREADS} threads, torch uses {torch.get_num_threads()}"


def quantizers(x: jax.Array, fmt: str) -> dict[str, Call]:
    """Every contender that has the format, by name, ours first and the copy last."""
    torch_x = torch.from_numpy(np.array(x).view(np.int16)).view(torch.bfloat16)
    host = np.asarray(x)
    calls = {
        "jax_mx native": _ours("native", lambda x: jax_mx.quantize_mx(x, fmt), x),
        "jax_mx xla": _ours("xla", lambda x: jax_mx.quantize_mx(x, fmt), x),
        "plain jnp, jitted": _jitted(lambda x: plain_jnp(x, fmt), x),
        "torchao eager": lambda: to_mx(torch_x, _TORCH_FORMATS[fmt], 32),
        "torchao compiled": _compiled(lambda x: to_mx(x, _TORCH_FORMATS[fmt], 32), torch_x),
        "float emulation": lambda: emulate(torch_x, fmt),
        "ml_dtypes + NumPy": lambda: cast_with_ml_dtypes(host, fmt),
    }
    if fmt == "float4_e2m1fn" and ggml is not None:
        calls["ggml MXFP4"] = _ggml(host.astype(np.float32))
    calls["copy"] = copy_moving(x.nbytes + _code_bytes(x.shape, fmt))
    return calls


def dequantizers(x: jax.Array, fmt: str, out_dtype: str) -> dict[str, Call]:
    """Ours, and the copy that moves as many bytes."""
    data, scale = jax_mx.quantize_mx(x, fmt)

    def dequantize(data: jax.Array, scale: jax.Array) -> jax.Array:
        return jax_mx.dequantize_mx(data, scale, fmt, out_dtype=out_dtype)

    return {
        "jax_mx native": _ours("native", dequantize, data, scale),
        "jax_mx xla": _ours("xla", dequantize, data, scale),
        "copy": copy_moving(x.size * jnp.dtype(out_dtype).itemsize + _code_bytes(x.shape, fmt)),
    }


def copy_moving(total: int) -> Call:
    """`np.copyto` into fresh memory, with every thread, that reads and writes `total` bytes altogether."""
    source = np.random.default_rng(0).integers(0, 256, total // 2, np.uint8)
    bounds = np.linspace(0, source.size, THREADS + 1).astype(int).tolist()

    def copy() -> np.ndarray:
        fresh = np.empty_like(source)
        list(_pool.map(lambda i, j: np.copyto(fresh[i:j], source[i:j]), bounds[:-1], bounds[1:]))
        return fresh

    return copy


def emulate(x: torch.Tensor, fmt: str) -> torch.Tensor:
    """Quantization in float arithmetic that returns floats, as emulation libraries for training do it."""
    info = ml_dtypes.finfo(fmt)
    blocks = x.float().reshape(-1, 32)
    peak = blocks.abs().amax(dim=1, keepdim=True)
    shared = torch.floor(torch.log2(peak + (peak == 0) * 2.0**-126)) - math.floor(math.log2(float(info.max)))
    scaled = blocks / 2.0**shared
    exponent = torch.floor(torch.log2(scaled.abs() + (scaled == 0))).clamp(min=float(info.minexp))
    step = 2.0 ** (exponent - info.nmant)
    rounded = torch.round(scaled / step) * step
    largest = float(info.max)
    return (rounded.clamp(-largest, largest) * 2.0**shared).reshape(x.shape)


def cast_with_ml_dtypes(x: np.ndarray, fmt: str) -> tuple[np.ndarray, np.ndarray]:
    """The same formula in NumPy, with ml_dtypes' cast at the end."""
    largest = float(ml_dtypes.finfo(fmt).max)
    blocks = x.astype(np.float32).reshape(-1, 32)
    _, exponent = np.frexp(np.abs(blocks).max(axis=1, keepdims=True))
    exponent = exponent - 1 - math.floor(math.log2(largest))
    scaled = np.clip(np.ldexp(blocks, -exponent), -largest, largest)
    return scaled.astype(fmt).reshape(x.shape), (exponent + 127).astype(np.uint8)


def _ours(implementation: Any, f: Callable[..., Any], *args: jax.Array) -> Call:
    compiled = jax.jit(f)

    def call() -> Any:
        with jax_mx.config.use_implementation(implementation):
            return compiled(*args)

    return call


def _jitted(f: Callable[..., Any], *args: jax.Array) -> Call:
    compiled = jax.jit(f)
    return lambda: compiled(*args)


def _compiled(f: Callable[..., Any], x: torch.Tensor) -> Call:
    compiled = torch.compile(f)
    return lambda: compiled(x)


def _ggml(x: np.ndarray) -> Call:
    ggml.ggml_quantize_init(_GGML_TYPE_MXFP4)
    rows, columns = x.shape
    bounds = np.linspace(0, rows, THREADS + 1).astype(int).tolist()
    pointer = x.ctypes.data_as(ggml.ctypes.POINTER(ggml.ctypes.c_float))

    def quantize() -> np.ndarray:
        packed = np.empty((rows, columns // 32, _GGML_BLOCK_BYTES), np.uint8)

        def part(first: int, last: int) -> None:
            ggml.ggml_quantize_chunk(
                _GGML_TYPE_MXFP4, pointer, packed.ctypes.data, first * columns, last - first, columns, None
            )

        list(_pool.map(part, bounds[:-1], bounds[1:]))
        return packed

    return quantize


def _code_bytes(shape: tuple[int, ...], fmt: str) -> int:
    elements = math.prod(shape)
    return elements * (4 if fmt == "float4_e2m1fn" else 8) // 8 + elements // 32

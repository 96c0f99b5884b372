"""The library's C functions for tests: any memory, any instruction set, any number of threads."""

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from jax_mx import ScaleRule
from jax_mx._formats import FORMATS, ElementFormat
from jax_mx._native import library

FLOATS = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32))


class _QuantizeJob(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 3),
        ("source", ctypes.c_int32),
        ("format", ctypes.c_int32),
        ("exponent_offset", ctypes.c_int32),
        ("min_scale", ctypes.c_int32),
        ("propagate_nan", ctypes.c_bool),
    )


class _DequantizeJob(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 3),
        ("format", ctypes.c_int32),
        ("target", ctypes.c_int32),
    )


def functions() -> ctypes.CDLL:
    """The loaded library's functions."""
    loaded = library.load()
    assert isinstance(loaded, library.Library), loaded.reason
    return loaded.functions


def instruction_sets() -> list[int]:
    """The sets of kernels that this processor can run, by number."""
    return list(range(functions().jax_mx_best_isa() + 1))


def new(shape: tuple[int, ...], dtype: Any, offset: int) -> np.ndarray:
    """An array that begins `offset` elements after an aligned address, in memory full of 0xA5 bytes."""
    size = int(np.prod(shape))
    memory = np.full((size + offset + 16) * np.dtype(dtype).itemsize, 0xA5, np.uint8)
    return memory.view(dtype)[offset : offset + size].reshape(shape)


def quantize(
    x: np.ndarray, fmt: ElementFormat, rule: ScaleRule, isa: int, threads: int, offset: int = 0, flush: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes x [outer, length, inner] along its middle axis; `offset` misaligns the results."""
    outer, length, inner = x.shape
    data = new((outer, length // 4, inner), fmt.container_dtype, offset)
    scale = new((outer, -(-length // 32), inner), np.uint8, offset)
    job = _QuantizeJob(
        x.ctypes.data, data.ctypes.data, scale.ctypes.data, x.shape, FLOATS.index(x.dtype), FORMATS.index(fmt),
        rule.exponent_offset(fmt), rule.min_scale, rule.propagate_nan,
    )  # fmt: skip
    assert functions().jax_mx_quantize_raw(ctypes.byref(job), isa, threads, flush) == 0
    _assert_untouched_outside(data, scale)
    return data, scale


def dequantize(
    data: np.ndarray,
    scale: np.ndarray,
    shape: tuple[int, int, int],
    fmt: ElementFormat,
    out_dtype: np.dtype[Any],
    isa: int,
    threads: int,
    offset: int = 0,
    flush: bool = False,
) -> np.ndarray:
    """Dequantizes to [outer, length, inner]."""
    y = new(shape, out_dtype, offset)
    job = _DequantizeJob(
        data.ctypes.data, scale.ctypes.data, y.ctypes.data, shape, FORMATS.index(fmt), FLOATS.index(np.dtype(out_dtype))
    )
    assert functions().jax_mx_dequantize_raw(ctypes.byref(job), isa, threads, flush) == 0
    _assert_untouched_outside(y)
    return y


def _assert_untouched_outside(*arrays: np.ndarray) -> None:
    for array in arrays:
        memory = array
        while memory.base is not None:
            memory = memory.base
        first = (array.ctypes.data - memory.ctypes.data) // array.itemsize
        whole = memory.view(np.uint8)
        start, stop = first * array.itemsize, first * array.itemsize + array.nbytes
        assert np.all(whole[:start] == 0xA5) and np.all(whole[stop:] == 0xA5), "written out of bounds"

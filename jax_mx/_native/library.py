"""Finds the library of native kernels beside this file and registers its handlers with XLA, once.

It is absent when the package was installed without a C++ compiler, and useless when jaxlib was since replaced by one
whose FFI no longer takes it. Neither is an error: the caller learns the reason and leaves the work to XLA.
"""

import ctypes
import functools
import pathlib
from dataclasses import dataclass

import jax

QUANTIZE_TARGET = "jax_mx_quantize"
DEQUANTIZE_TARGET = "jax_mx_dequantize"

INSTRUCTION_SETS = ("portable", "AVX2", "AVX-512")
"""Names of the sets of kernels, by the number that the library gives them."""

_FILE = "kernels.abi3.so"


@dataclass(frozen=True)
class Library:
    """The loaded library.

    Attributes:
        functions: its C functions.
        instruction_set: the kernels that it uses on this processor.
    """

    functions: ctypes.CDLL
    instruction_set: str


@dataclass(frozen=True)
class Unavailable:
    """Why there is no library."""

    reason: str


@functools.cache
def load() -> Library | Unavailable:
    """Loads the library and registers its handlers for the platform "cpu"."""
    path = pathlib.Path(__file__).parent / _FILE
    if not path.is_file():
        return Unavailable("the native kernels were not built: this needs a C++17 compiler when jax-mx is installed")
    try:
        functions = ctypes.CDLL(str(path))
    except OSError as e:
        return Unavailable(f"the native kernels do not load: {e}")
    try:
        for target in (QUANTIZE_TARGET, DEQUANTIZE_TARGET):
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(functions, target)), platform="cpu")
    except (jax.errors.JaxRuntimeError, AttributeError) as e:
        return Unavailable(f"the native kernels do not fit this jaxlib or were built from other sources: {e}")
    return Library(functions, INSTRUCTION_SETS[functions.jax_mx_best_isa()])

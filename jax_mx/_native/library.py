"""Finds the library of native kernels beside this file and registers its handlers with XLA, once.

It is absent when the package was installed without a C++ compiler, and useless when jaxlib was since replaced by an
older one. Neither is an error: the caller learns the reason and leaves the work to XLA.

The name of the file ends in the version of XLA's FFI that it was compiled for. XLA takes handlers of its own version
and of older ones, but learns a handler's version only while it starts, where a refusal would leave jax without a CPU;
so the version is compared here, with that of the headers which jaxlib brings.
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

_PREFIX, _SUFFIX = "kernels_ffi_", ".abi3.so"


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
    path = find(pathlib.Path(__file__).parent, ffi_version(pathlib.Path(jax.ffi.include_dir())))
    if isinstance(path, Unavailable):
        return path
    try:
        functions = ctypes.CDLL(str(path))
        for target in (QUANTIZE_TARGET, DEQUANTIZE_TARGET):
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(functions, target)), platform="cpu")
    except (OSError, AttributeError, jax.errors.JaxRuntimeError) as e:
        return Unavailable(f"the native kernels in {path.name} cannot be used: {e}")
    return Library(functions, INSTRUCTION_SETS[functions.jax_mx_best_isa()])


def find(directory: pathlib.Path, version: tuple[int, int]) -> pathlib.Path | Unavailable:
    """The newest library of a directory that an FFI of this version takes."""
    by_version: dict[tuple[int, int], pathlib.Path] = {}
    for path in sorted(directory.glob(f"{_PREFIX}*{_SUFFIX}")):
        major, minor = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX).split("_")
        by_version[int(major), int(minor)] = path
    if not by_version:
        return Unavailable("the native kernels were not built: this needs a C++17 compiler when jax-mx is installed")
    fitting = [built for built in by_version if built[0] == version[0] and built <= version]
    if not fitting:
        built_for = ", ".join(f"{major}.{minor}" for major, minor in by_version)
        return Unavailable(
            f"the native kernels were built for version {built_for} of XLA's FFI and this jaxlib has "
            f"{version[0]}.{version[1]}: install jax-mx again"
        )
    return by_version[max(fitting)]


def ffi_version(include: pathlib.Path) -> tuple[int, int]:
    """The version of XLA's FFI that a jaxlib's headers describe."""
    lines = (include / "xla" / "ffi" / "api" / "c_api.h").read_text(encoding="utf-8").splitlines()
    defined = dict(line.split()[1:3] for line in lines if line.startswith("#define XLA_FFI_API_M"))
    return int(defined["XLA_FFI_API_MAJOR"]), int(defined["XLA_FFI_API_MINOR"])

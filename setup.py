"""Builds the native CPU kernels of `jax_mx`; everything else about the package is in pyproject.toml.

The kernels are optional: without a C++ compiler the package installs all the same and uses what XLA compiles. They are
compiled once per instruction set of x86-64, and once for whatever else the processor may be.
"""

import pathlib
import platform
from typing import Any

import jaxlib
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = pathlib.Path("jax_mx", "_native")
INCLUDE = pathlib.Path(jaxlib.__file__).parent / "include"
KERNELS = [str(NATIVE / name) for name in ("quantize.cc", "dequantize.cc")]
HEADERS = [str(path) for path in sorted(NATIVE.glob("*.h"))]
# -fwrapv: lanes whose result a select throws away may overflow.
FLAGS = ["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-ffp-contract=off", "-fwrapv", "-pthread"]

# Instruction set: bytes of its registers, and the compiler's flags for it. `dispatch.h` asks for the same features.
PORTABLE: dict[str, tuple[int, list[str]]] = {"portable": (16, [])}
X86: dict[str, tuple[int, list[str]]] = {
    "avx2": (32, ["-mavx2", "-mf16c"]),
    "avx512": (64, ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]),
}
IS_X86 = platform.machine() in ("x86_64", "AMD64")


def ffi_version() -> str:
    """The version of XLA's FFI that the headers describe, such as "0_3": an older jaxlib refuses what they compile."""
    lines = (INCLUDE / "xla" / "ffi" / "api" / "c_api.h").read_text().splitlines()
    defined = dict(line.split()[1:3] for line in lines if line.startswith("#define XLA_FFI_API_M"))
    return f"{defined['XLA_FFI_API_MAJOR']}_{defined['XLA_FFI_API_MINOR']}"


class BuildKernels(build_ext):
    """Compiles the kernels for each instruction set before the extension that links them."""

    def build_extension(self, ext: Any) -> None:
        """Compiles and links one extension."""
        objects = []
        for isa, (width, flags) in (PORTABLE | X86 if IS_X86 else PORTABLE).items():
            objects += self.compiler.compile(
                KERNELS,
                output_dir=str(pathlib.Path(self.build_temp, isa)),
                macros=[("JAX_MX_ISA", isa), ("JAX_MX_VECTOR_BYTES", str(width))],
                extra_postargs=FLAGS + flags,
                depends=HEADERS,
            )
        ext.extra_objects = objects
        super().build_extension(ext)


setup(
    ext_modules=[
        Extension(
            f"jax_mx._native.kernels_ffi_{ffi_version()}",  # so that builds for several versions can lie side by side
            [str(NATIVE / "handlers.cc")],
            include_dirs=[str(INCLUDE)],
            define_macros=[("JAX_MX_HAVE_X86", None)] if IS_X86 else [],
            depends=[*KERNELS, *HEADERS],
            extra_compile_args=FLAGS,
            extra_link_args=["-pthread"],
            language="c++",
            optional=True,
            py_limited_api=True,  # it uses no Python at all: one file serves every version
        )
    ],
    cmdclass={"build_ext": BuildKernels},
)

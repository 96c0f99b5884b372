"""Every import that jax does not promise, in one place.

jax promises `jax.*` and, more loosely, `jax.extend.*`. The HLO classes, the converter from StableHLO to HLO and the
MLIR bindings live in `jaxlib`, whose layout moves from release to release. The rest of the package asks this module,
so that a new release is met by editing one file. Checked with jax 0.10.2 and 0.12.
"""

import io
from typing import Any

import jax
from jax._src.interpreters import mlir as _jax_mlir
from jax.extend import backend as _backend
from jax.extend import mlir as _extend_mlir
from jax.extend import xla as _extend_xla
from jaxlib import _hlo
from jaxlib._jax import mlir as _jaxlib_mlir
from jaxlib.mlir import ir as ir
from jaxlib.mlir import passmanager

HloModule = _hlo.HloModule
PipelineStage = _extend_xla.PipelineStage
register_hlo_module_transformation = _extend_xla.register_hlo_module_transformation
clear_hlo_module_transformation = _extend_xla.clear_hlo_module_transformation

IR_ERRORS: tuple[type[Exception], ...] = (ir.MLIRError, jax.errors.JaxRuntimeError, ValueError, RuntimeError)
"""What jaxlib raises when text or bytes are not the IR they are taken for."""


def new_context() -> Any:
    """Returns an MLIR context with every dialect that jax itself emits."""
    return _jax_mlir.make_ir_context()


def parse_hlo_text(text: str) -> Any:
    """Returns the `HloModule` of `text`. The parser checks syntax, not shapes."""
    return _hlo.hlo_module_from_text(text)


def hlo_module_from_proto(proto: bytes) -> Any:
    """Returns the `HloModule` of a serialized HloModuleProto."""
    return HloModule.from_serialized_hlo_module_proto(proto)


def print_hlo(module: Any) -> str:
    """Prints an `HloModule` in full: jaxlib's default elides constants, which the parser then refuses."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return str(module.to_string(options))


def hlo_header(module: Any) -> str:
    """Returns the first line of an `HloModule` as text: its name, layouts and configuration."""
    return str(module.to_string()).partition("\n")[0]


def hlo_to_stablehlo(proto: bytes) -> bytes:
    """Returns StableHLO bytecode for a serialized HloModuleProto."""
    return bytes(_extend_mlir.hlo_to_stablehlo(proto))


def stablehlo_to_hlo(module: Any) -> bytes:
    """Returns the serialized HloModuleProto of a StableHLO module.

    The module travels as bytecode: locations become HLO metadata only on that road, printed text would lose them.
    """
    computation = _jaxlib_mlir.mlir_module_to_xla_computation(
        bytecode(module), use_tuple_args=False, return_tuple=False
    )
    return bytes(computation.as_serialized_hlo_module_proto())


def bytecode(module: Any) -> bytes:
    """Returns a module as MLIR bytecode."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def is_dictionary_attribute(text: str, context: Any) -> bool:
    """Whether a text parses as an MLIR dictionary attribute."""
    try:
        return isinstance(ir.Attribute.parse(text, context), ir.DictAttr)
    except IR_ERRORS:
        return False


def strip_locations(module: Any) -> None:
    """Makes every location of a module unknown. The module's context must be current."""
    passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)


def remove_unused_functions(module: Any) -> None:
    """Erases private functions that nothing refers to. The module's context must be current."""
    passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module.operation)


def deserialize_portable_artifact(artifact: bytes, context: Any) -> bytes:
    """Returns the StableHLO module of a portable artifact as bytecode."""
    return bytecode(_extend_mlir.deserialize_portable_artifact(artifact, context))


def compile_cpu(module: Any) -> Any:
    """Compiles a StableHLO module for the first CPU device."""
    client = _backend.get_backend("cpu")
    return client.compile_and_load(bytecode(module), client.local_devices()[:1])

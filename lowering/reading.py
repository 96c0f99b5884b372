"""Reads a module in any of the forms in which compilers pass it around, recognised by content.

HLO text, HloModuleProto, StableHLO text, MLIR bytecode, StableHLO portable artifact and `jax.export` blobs all become
one StableHLO module. jaxlib parses; what it refuses becomes a diagnostic, never a traceback.
"""

import enum
import re

import jax.export

from lowering import _compat, hlo_adapter
from lowering._compat import ir
from lowering.diagnostics import LoweringError, error
from lowering.module import Module

_BYTECODE_MAGIC = b"ML\xefR"
_HLO_TEXT_STARTS = ("HloModule", "ENTRY", "%", "ROOT")
_ARTIFACT_PRODUCER = b"StableHLO_v"

HEADER_ATTRIBUTES = ", frontend_attributes={"
"""What ends the part of an HLO text's header that has the numbers of replicas and partitions."""

_COUNT = re.compile(r", (?:replica_count|num_partitions)=\d+")

NAMED_TARGETS = (b"quantize", b"block_scaled_dot", b"scaledmatmul", b"scaled_dot", b"scaled_matmul")
"""Lower-case pieces of custom call targets whose HLO instruction name is kept for messages."""


class InputForm(enum.StrEnum):
    """The forms a module is read from."""

    HLO_TEXT = "HLO text"
    HLO_PROTO = "HloModuleProto"
    STABLEHLO_TEXT = "StableHLO text"
    BYTECODE = "MLIR bytecode"
    PORTABLE_ARTIFACT = "StableHLO portable artifact"
    EXPORT = "jax.export blob"


def recognise(data: bytes | bytearray | str, name: str = "<input>") -> InputForm:
    """Says in which form a module is, from its content alone; nothing is parsed.

    Args:
        data: The module.
        name: File name for messages.

    Returns:
        The form it looks like; what is no text and has no known start counts as a HloModuleProto.

    Raises:
        TypeError: `data` is neither bytes nor text, but a path for example.
        LoweringError: With code MX001 when it is empty.
    """
    data = _as_bytes(data)
    if not data.strip():
        raise error("MX001", f"{name} is empty", "give a module in one of the forms that mx-opt reads")
    if data.startswith(_BYTECODE_MAGIC):
        # The producer string stands in the header of the bytecode, right after the magic and the version.
        return InputForm.PORTABLE_ARTIFACT if _ARTIFACT_PRODUCER in data[:32] else InputForm.BYTECODE
    text = _as_text(data)
    if text is not None:
        return InputForm.HLO_TEXT if _first_code(text).startswith(_HLO_TEXT_STARTS) else InputForm.STABLEHLO_TEXT
    # A serialized HloModuleProto starts with its name (field 1, bytes); a jax.export blob holds bytecode.
    if _BYTECODE_MAGIC in data and data[0] != 0x0A:
        return InputForm.EXPORT
    return InputForm.HLO_PROTO


def read_module(data: bytes | bytearray | str, name: str = "<input>") -> Module:
    """Reads a module.

    Args:
        data: The module in any of the forms of `InputForm`: what is in a file, not its path.
        name: File name for messages.

    Returns:
        The module as verified StableHLO.

    Raises:
        TypeError: `data` is neither bytes nor text, but a path for example.
        LoweringError: With code MX001 (cannot be read as the form it looks like) or MX002 (not valid IR).
    """
    raw = _as_bytes(data)
    form = recognise(raw, name)
    context = _compat.new_context()
    hlo_proto: bytes | None = None
    hlo_counts = ""
    try:
        if form in (InputForm.HLO_TEXT, InputForm.HLO_PROTO):
            hlo_proto = raw
            if form is InputForm.HLO_TEXT:
                hlo_module = _compat.parse_hlo_text(raw.decode())
                hlo_proto = bytes(hlo_module.as_serialized_hlo_module_proto())
                if any(name in raw for name in (b"replica_count", b"num_partitions")):
                    hlo_counts = _counts(_compat.hlo_header(hlo_module))
            prepared = hlo_adapter.prepare_for_stablehlo(
                hlo_proto, NAMED_TARGETS, lambda text: _compat.is_dictionary_attribute(text, context)
            )
            serialized: bytes | str = _compat.hlo_to_stablehlo(prepared)
        elif form is InputForm.PORTABLE_ARTIFACT:
            serialized = _compat.deserialize_portable_artifact(raw, context)
        elif form is InputForm.EXPORT:
            serialized = _export_module(raw)
        elif form is InputForm.STABLEHLO_TEXT:
            serialized = raw.decode()
        else:
            serialized = raw
        # Bytes may hold text that is not UTF-8. jaxlib turns an error message that quotes it into a Python string and
        # stops the process when that fails; printed to standard error by MLIR itself, the message does no harm.
        context.emit_error_diagnostics = form not in (InputForm.STABLEHLO_TEXT, InputForm.HLO_TEXT)
        with context:
            mlir = ir.Module.parse(serialized)
            if hlo_proto is not None:
                # The converter leaves a function behind for every branch and loop body that it made a region of.
                _compat.remove_unused_functions(mlir)
    except _compat.IR_ERRORS as e:
        raise _unreadable(name, form, e) from None
    if next(iter(mlir.body.operations), None) is None:
        raise error("MX001", f"the module in {name} is empty", "give a module with at least one function")
    is_text = form is InputForm.STABLEHLO_TEXT
    located = not is_text or b"loc(" in raw
    module = Module(
        name=name,
        context=context,
        mlir=mlir,
        hlo_proto=hlo_proto,
        hlo_counts=hlo_counts,
        located=located,
        partly_located=located and is_text,
    )
    verify(module)
    return module


def verify(module: Module) -> None:
    """Checks the module's IR. Raises LoweringError with code MX002 when it is not valid."""
    try:
        module.mlir.operation.verify()
    except _compat.IR_ERRORS as e:
        raise error(
            "MX002", f"{module.name} is not valid IR: {_one_line(e)}", "correct the program that made it"
        ) from None


def _counts(header: str) -> str:
    """Returns the numbers of replicas and partitions from the header of an HLO text that jaxlib printed."""
    # They stand before the frontend attributes, whose texts may look like anything.
    before, _, _ = header.partition(HEADER_ATTRIBUTES)
    return "".join(_COUNT.findall(before))


def _export_module(raw: bytes) -> str:
    try:
        return str(jax.export.deserialize(bytearray(raw)).mlir_module())
    except Exception as e:  # noqa: BLE001  flatbuffers has no exception of its own: any failure means a bad blob
        raise ValueError(f"{type(e).__name__}: {e}") from None


def _unreadable(name: str, form: InputForm, cause: Exception) -> LoweringError:
    return error(
        "MX001",
        f"{name} looks like {form} and cannot be read as that: {_one_line(cause)}",
        "give HLO text, a HloModuleProto, StableHLO text or bytecode, a portable artifact or a jax.export blob",
    )


def _as_bytes(data: object) -> bytes:
    if isinstance(data, str):
        # Half a surrogate pair has no UTF-8; whatever it is in, the parser refuses what it becomes.
        return data.encode(errors="surrogatepass")
    if isinstance(data, bytes | bytearray):
        return bytes(data)
    raise TypeError(
        f"data is a {type(data).__name__}, wanted bytes or str: the module itself, such as path.read_bytes()"
    )


def _one_line(cause: Exception) -> str:
    text = " ".join(str(cause).split())
    return text if len(text) <= 500 else text[:500] + " ..."


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _first_code(text: str) -> str:
    """Returns the text from its first character that is neither blank nor comment."""
    while True:
        text = text.lstrip()
        if text.startswith("//"):
            _, _, text = text.partition("\n")
        elif text.startswith("/*"):
            _, _, text = text.partition("*/")
        else:
            return text

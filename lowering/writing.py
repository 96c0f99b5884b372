"""Writes a module as HLO text, HloModuleProto, StableHLO text or MLIR bytecode."""

from lowering import _compat, hlo_adapter
from lowering._compat import ir
from lowering.diagnostics import error
from lowering.locations import remove_made_up
from lowering.module import Format, Module
from lowering.options import choice
from lowering.reading import HEADER_ATTRIBUTES

_FRONTEND_ATTRIBUTES = "mhlo.frontend_attributes"


def write_module(module: Module, fmt: Format | str) -> bytes:
    """Returns the module in the wanted form.

    A module that came as HLO and that no pass has changed is written as it came, instruction names included.

    Args:
        module: The module; it is not changed.
        fmt: A member of `Format`, or its text: "hlo", "hlo-proto", "stablehlo" or "bytecode".

    Returns:
        What belongs in a file; text is UTF-8 and ends with a newline.

    Raises:
        OptionError: A ValueError, with code MX017, when `fmt` is no format.
        LoweringError: With code MX005 when the module has no such form, for example StableHLO with dynamic dimensions
            and HLO.
    """
    fmt = choice(Format, "fmt", fmt)
    if fmt in (Format.HLO_TEXT, Format.HLO_PROTO):
        proto = to_hlo_proto(module)
        if fmt is Format.HLO_PROTO:
            return proto
        header, newline, rest = print_hlo_proto(proto).partition("\n")
        before, attributes, after = header.partition(HEADER_ATTRIBUTES)
        return f"{before}{module.hlo_counts}{attributes}{after}{newline}{rest}".encode()
    plain = for_writing(module)
    if fmt is Format.BYTECODE:
        return _compat.bytecode(plain.mlir)
    text = str(plain.mlir.operation.get_asm(enable_debug_info=plain.located))
    return (text.rstrip("\n") + "\n").encode()


def print_hlo_proto(proto: bytes) -> str:
    """Spells a module in binary HLO as HLO text.

    Args:
        proto: A serialized HloModuleProto, such as `write_module` returns for `Format.HLO_PROTO`.

    Returns:
        The text, constants in full, ended by one newline.

    Raises:
        LoweringError: With code MX001 when jaxlib cannot read `proto`.
    """
    try:
        text = _compat.print_hlo(_compat.hlo_module_from_proto(proto))
    except _compat.IR_ERRORS as e:
        cause = " ".join(str(e).split())[:500]
        raise error("MX001", f"proto is no HloModuleProto: {cause}", "give a serialized HloModuleProto") from None
    return text.rstrip("\n") + "\n"


def to_hlo_proto(module: Module) -> bytes:
    """Returns the module as a serialized HloModuleProto. Raises LoweringError with code MX005."""
    if module.hlo_proto is not None and not module.changed:
        return module.hlo_proto
    try:
        return hlo_adapter.fold_metadata_constants(_compat.stablehlo_to_hlo(for_writing(module).mlir))
    except _compat.IR_ERRORS as e:
        cause = " ".join(str(e).split())[:500]
        raise error(
            "MX005", f"{module.name} cannot be written as HLO: {cause}", "write it as StableHLO, or remove the cause"
        ) from None


def for_writing(module: Module) -> Module:
    """Returns the module without what only this package may see: carried HLO names and made-up locations."""
    if module.hlo_proto is None and module.located and not module.partly_located:
        return module
    copy = module.clone()
    with copy.context:
        for op in copy.operations_named("stablehlo.custom_call", "func.call"):
            drop_name(op)
        if not module.located:
            _compat.strip_locations(copy.mlir)
        elif module.partly_located:
            copy.located = remove_made_up(copy.mlir)
    return copy


def drop_name(op: object) -> None:
    """Removes the name attribute from one operation, and the dictionary around it when that leaves it empty."""
    attributes = op.attributes  # type: ignore[attr-defined]
    if _FRONTEND_ATTRIBUTES not in attributes:
        return
    kept = {a.name: a.attr for a in attributes[_FRONTEND_ATTRIBUTES] if a.name != hlo_adapter.NAME_ATTRIBUTE}
    if kept:
        attributes[_FRONTEND_ATTRIBUTES] = ir.DictAttr.get(kept)
    else:
        del attributes[_FRONTEND_ATTRIBUTES]

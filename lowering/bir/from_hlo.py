"""Reads the legalized quantize calls of a module: what `lower_calls` lowers.

Each `QuantizeMX_{bf16,f16}_{e4m3fn,e5m2,e2m1fn}` call, anywhere in the module, becomes one `LegalizedCall`. Its input
is named after the HLO operand, or after the SSA value where there is no HLO; its outputs after the instruction, with
".data" and ".scale" (this project's decision: the two results are one tuple in HLO and have no names of their own).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowering.bir.lower import LegalizedCall
from lowering.calls import CUSTOM_CALL, QUANTIZE_TARGET, describe, target_of
from lowering.diagnostics import Diagnostic, LoweringError
from lowering.hlo_proto import COMPUTATION_INSTRUCTIONS, ID, MODULE_COMPUTATIONS, NAME, OPERANDS, Message
from lowering.module import Module

__all__ = ["NOT_LOWERABLE", "legalized_calls"]

NOT_LOWERABLE = "MX016"
"""Code of calls and options that cannot be lowered."""

_SOURCES = {"bf16": "bfloat16", "f16": "float16"}
_DATA = {"e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1fn": "float4_e2m1fn"}


def legalized_calls(module: Module) -> list[LegalizedCall]:
    """Finds the legalized quantize calls of a module, for `lower_calls`.

    Args:
        module: A module that `LegalizeQuantizeMx` has rewritten; it is not changed.

    Returns:
        The calls, in post order, each with the scale rule that its `mx_scale_rule` attribute names, EMAX where it
        names none.

    Raises:
        LoweringError: With code MX016 for every call that was not legalized, or whose operands are not the metadata
            and one static array.
    """
    calls: list[LegalizedCall] = []
    operand_names = _hlo_operand_names(module.hlo_proto) if module.hlo_proto is not None else {}
    diagnostics: list[Diagnostic] = []
    with module.context:
        for op in module.operations_named(CUSTOM_CALL):
            head, _, tags = target_of(op).partition("_")
            if head == QUANTIZE_TARGET:
                found = _read(module, op, tags, operand_names)
                if isinstance(found, Diagnostic):
                    diagnostics.append(found)
                else:
                    calls.append(found)
    if diagnostics:
        raise LoweringError(diagnostics)
    return calls


def _read(module: Module, op: Any, tags: str, operand_names: Mapping[str, str]) -> LegalizedCall | Diagnostic:
    call = describe(module, op)
    source, _, data = tags.partition("_")

    def refused(cause: str, resolution: str) -> Diagnostic:
        return Diagnostic(
            code=NOT_LOWERABLE,
            cause=cause,
            resolution=resolution,
            instruction=call.name,
            shapes=call.shapes,
            location=call.location,
        )

    if source not in _SOURCES or data not in _DATA:
        return refused(f"{call.target} is not a legalized target", "run legalize-quantize-mx before lower-to-bir")
    metadata, operand = call.metadata, call.operands[-1]
    if len(call.operands) != 2 or metadata is None or len(metadata) != 4 or not isinstance(metadata[1], int):
        return refused(f"{call.target} has no constant metadata operand", "give it what legalize-quantize-mx makes")
    if not operand.is_static or operand.element_type != source:
        return refused(f"the operand is {operand}", f"give a static {source} array")
    name = _plain_name(call.name)
    return LegalizedCall(
        shape=operand.static_dims,
        element_type=_SOURCES[source],
        dtype=_DATA[data],
        axis=metadata[1],
        scale_rule=call.scale_rule or "EMAX",
        operand=operand_names.get(call.name) or _plain_name(module.ssa_name(op.operands[1])),
        data=f"{name}.data",
        scale=f"{name}.scale",
        source=None if call.location is None else (call.location.file, call.location.line),
    )


def _plain_name(name: str) -> str:
    """A name without the sigil of its language."""
    return name.lstrip("%")


def _hlo_operand_names(proto: bytes) -> dict[str, str]:
    """The last operand's name of every instruction that a module with MX calls had when it was read as HLO."""
    names: dict[str, str] = {}
    for data in Message.parse(proto).all_bytes(MODULE_COMPUTATIONS):
        if QUANTIZE_TARGET.encode() not in data:
            continue
        instructions = [Message.parse(item) for item in Message.parse(data).all_bytes(COMPUTATION_INSTRUCTIONS)]
        by_id = {item.get_int(ID): item.get_bytes(NAME).decode() for item in instructions}
        for item in instructions:
            operands = item.get_ints(OPERANDS)
            if operands:
                names[item.get_bytes(NAME).decode()] = by_id[operands[-1]]
    return names

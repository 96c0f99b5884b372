"""What the legalization passes share: putting legalized calls, with constant metadata, in the place of calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowering._compat import ir
from lowering.attributes import text_of
from lowering.calls import (
    CUSTOM_CALL,
    FRONTEND_ATTRIBUTES,
    SCALE_RULE_ATTRIBUTE,
    Call,
    Signature,
    forget_matches,
)
from lowering.module import Module

_KEPT_ATTRIBUTES = ("mhlo.sharding", "sdy.sharding", "has_side_effect", "xla_shape")
"""What a legalized call keeps. Layout constraints go: they would need one for the metadata, and tuples have none."""

_SHARDING_RULE = "xla.sdy.sharding_rule"
"""Frontend attribute under which HLO carries a call's Shardy rule, in StableHLO `sdy.sharding_rule`.

A legalized call has none: a rule would need a line for the metadata, and Shardy knows no tuples. How the results are
sharded stays.
"""

MetadataEntry = int | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Legalized:
    """What a call becomes; the same for all calls that say the same.

    Attributes:
        target: Custom call target.
        metadata: Entries of the metadata operand.
        metadata_first: Whether the metadata comes before the call's operands or after them.
        backend_config: Configuration.
        scale_rule: Name of the scale rule, for the frontend attribute; a call may say it in its configuration only.
    """

    target: str
    metadata: tuple[MetadataEntry, ...]
    metadata_first: bool
    backend_config: str
    scale_rule: str | None = None


def legalize(module: Module, calls: Sequence[Call], become: Callable[[Call], Legalized]) -> int:
    """Replaces calls in place by custom calls of api version 1; returns how many.

    Results, location and kept attributes stay.

    Args:
        module: The module.
        calls: The calls, those of a block in a row.
        become: What a call becomes; asked once for calls that share a signature.
    """
    metadata = _MetadataBuilder()
    known: dict[Signature, tuple[Legalized, dict[str, Any]]] = {}
    for call in calls:
        if call.signature not in known:
            legalized = become(call)
            known[call.signature] = legalized, _said_by(legalized)
        legalized, said = known[call.signature]
        old = call.op
        extra, operands = metadata.build(legalized.metadata, old), list(old.operands)
        new = _create(
            CUSTOM_CALL,
            old,
            results=list(old.results.types),
            operands=[extra, *operands] if legalized.metadata_first else [*operands, extra],
            attributes=said | _kept_attributes(old.attributes, legalized.scale_rule),
        )
        replace(old, new)
    if calls:
        module.mark_changed()
    return len(calls)


class _MetadataBuilder:
    """Makes tuples of s64 scalars and vectors, constant, each before the call it is for and located where that is.

    The tuple is every call's own; the constants in it are shared by calls of a block whose metadata is the same.
    """

    def __init__(self) -> None:
        self._attributes: dict[MetadataEntry, Any] = {}
        self._block: Any = None
        self._parts: dict[tuple[MetadataEntry, ...], tuple[list[Any], list[Any]]] = {}

    def build(self, entries: tuple[MetadataEntry, ...], before: Any) -> Any:
        block = before.block
        if self._block is None or self._block != block:
            self._block, self._parts = block, {}
        if entries not in self._parts:
            constants = [self._constant(entry, before) for entry in entries]
            self._parts[entries] = constants, [ir.TupleType.get_tuple([c.type for c in constants])]
        constants, types = self._parts[entries]
        return _create("stablehlo.tuple", before, results=types, operands=constants).result

    def _constant(self, entry: MetadataEntry, before: Any) -> Any:
        if entry not in self._attributes:
            array = np.asarray(entry, dtype=np.int64)
            s64 = ir.IntegerType.get_signless(64)
            self._attributes[entry] = ir.DenseElementsAttr.get(array, type=s64, shape=array.shape)
        value = self._attributes[entry]
        return _create("stablehlo.constant", before, results=[value.type], attributes={"value": value}).result


def _create(name: str, before: Any, **parts: Any) -> Any:
    return ir.Operation.create(name, loc=before.location, ip=ir.InsertionPoint(before), **parts)


def _said_by(call: Legalized) -> dict[str, Any]:
    return {
        "call_target_name": ir.StringAttr.get(call.target),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        "backend_config": ir.StringAttr.get(call.backend_config),
    }


def _kept_attributes(attributes: Any, scale_rule: str | None) -> dict[str, Any]:
    kept = {name: attributes[name] for name in _KEPT_ATTRIBUTES if name in attributes}
    frontend: dict[str, Any] = {}
    if FRONTEND_ATTRIBUTES in attributes:
        frontend = {a.name: a.attr for a in attributes[FRONTEND_ATTRIBUTES] if a.name != _SHARDING_RULE}
    if scale_rule is not None and SCALE_RULE_ATTRIBUTE not in frontend:
        frontend[SCALE_RULE_ATTRIBUTE] = ir.StringAttr.get(scale_rule)
    if frontend:
        kept[FRONTEND_ATTRIBUTES] = ir.DictAttr.get(frontend)
    return kept


def replace(old: Any, new: Any) -> None:
    """Gives all uses of `old`'s results to `new`'s and erases `old`."""
    for before, after in zip(old.results, new.results, strict=True):
        before.replace_all_uses_with(after)
    old.erase()


def remove_decompositions(module: Module, names: set[str]) -> None:
    """Erases those of the named functions that nothing refers to any more: what a replaced composite fell back to."""
    if not names:
        return
    used: set[str] = set()

    def visit(op: Any) -> Any:
        for name in op.attributes:
            used.update(_symbols(op.attributes[name]))
        return ir.WalkResult.ADVANCE

    module.mlir.operation.walk(visit)
    for op in list(module.mlir.body.operations):
        if op.operation.name == "func.func" and text_of(op.attributes["sym_name"]) in names - used and _is_private(op):
            op.operation.erase()
    forget_matches(module)  # calls of another pass may have been in them


def decomposition_of(op: Any) -> str:
    """Returns the name of the function that a composite falls back to."""
    return str(op.attributes["decomposition"].value)


def _is_private(function: Any) -> bool:
    return "sym_visibility" in function.attributes and function.attributes["sym_visibility"].value == "private"


def _symbols(attribute: Any) -> list[str]:
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        return [text_of(attribute)]
    if isinstance(attribute, ir.ArrayAttr):
        return [name for item in attribute for name in _symbols(item)]
    return []

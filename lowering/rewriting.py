"""Building blocks that the legalization passes share: metadata constants, the new custom call, the replacement."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering._compat import ir
from lowering.calls import COMPOSITE, CUSTOM_CALL, FRONTEND_ATTRIBUTES
from lowering.module import Module

_KEPT_ATTRIBUTES = ("mhlo.sharding", "sdy.sharding", "has_side_effect", "xla_shape")
"""What a legalized call keeps. Layout constraints go: they would need one for the metadata, and tuples have none."""

_SHARDING_RULE = "xla.sdy.sharding_rule"
"""Frontend attribute under which HLO carries a call's Shardy rule, in StableHLO `sdy.sharding_rule`.

A legalized call has none: a rule would need a line for the metadata, and Shardy knows no tuples. How the results are
sharded stays.
"""

MetadataEntry = int | tuple[int, ...]


class MetadataBuilder:
    """Makes the metadata operand of legalized calls: a tuple of s64 scalars and vectors, constant.

    Attributes and types are interned per content: a module repeats the same few thousands of times.
    """

    def __init__(self) -> None:
        self._constants: dict[MetadataEntry, tuple[Any, Any]] = {}

    def build(self, entries: Sequence[MetadataEntry], before: Any) -> Any:
        """Returns the value of a tuple of constants, inserted before an operation and located where it is."""
        point, location = ir.InsertionPoint(before), before.location
        parts = []
        for entry in entries:
            mlir_type, attribute = self._constant(entry)
            parts.append(
                ir.Operation.create(
                    "stablehlo.constant", results=[mlir_type], attributes={"value": attribute}, loc=location, ip=point
                ).result
            )
        tuple_type = ir.TupleType.get_tuple([p.type for p in parts])
        return ir.Operation.create(
            "stablehlo.tuple", results=[tuple_type], operands=parts, loc=location, ip=point
        ).result

    def _constant(self, entry: MetadataEntry) -> tuple[Any, Any]:
        if entry not in self._constants:
            array = np.asarray(entry, dtype=np.int64)
            attribute = ir.DenseElementsAttr.get(array, type=ir.IntegerType.get_signless(64), shape=array.shape)
            self._constants[entry] = (attribute.type, attribute)
        return self._constants[entry]


def build_custom_call(old: Any, target: str, operands: Sequence[Any], backend_config: str) -> Any:
    """Returns a custom call of api version 1 with `old`'s results, location and kept attributes, inserted before it."""
    attributes = {
        "call_target_name": ir.StringAttr.get(target),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        "backend_config": ir.StringAttr.get(backend_config),
    }
    for name in _KEPT_ATTRIBUTES:
        if name in old.attributes:
            attributes[name] = old.attributes[name]
    if FRONTEND_ATTRIBUTES in old.attributes:
        kept = {a.name: a.attr for a in old.attributes[FRONTEND_ATTRIBUTES] if a.name != _SHARDING_RULE}
        if kept:
            attributes[FRONTEND_ATTRIBUTES] = ir.DictAttr.get(kept)
    return ir.Operation.create(
        CUSTOM_CALL,
        results=[r.type for r in old.results],
        operands=list(operands),
        attributes=attributes,
        loc=old.location,
        ip=ir.InsertionPoint(old),
    )


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
        if op.operation.name == "func.func" and op.attributes["sym_name"].value in names - used and _is_private(op):
            op.operation.erase()


def decomposition_of(op: Any) -> str | None:
    """Returns the name of the function that a composite falls back to, None for a custom call."""
    return str(op.attributes["decomposition"].value) if op.name == COMPOSITE else None


def _is_private(function: Any) -> bool:
    return "sym_visibility" in function.attributes and function.attributes["sym_visibility"].value == "private"


def _symbols(attribute: Any) -> list[str]:
    if isinstance(attribute, ir.FlatSymbolRefAttr):
        return [attribute.value]
    if isinstance(attribute, ir.ArrayAttr):
        return [name for item in attribute for name in _symbols(item)]
    return []

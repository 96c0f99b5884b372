"""The one module representation: StableHLO in jaxlib's MLIR bindings, with where it came from."""

import enum
from dataclasses import dataclass, field
from typing import Any

from lowering import _compat
from lowering._compat import ir


class Format(enum.StrEnum):
    """The forms a module is written in."""

    HLO_TEXT = "hlo"
    HLO_PROTO = "hlo-proto"
    STABLEHLO_TEXT = "stablehlo"
    BYTECODE = "bytecode"


@dataclass(kw_only=True)
class Module:
    """A module being lowered.

    Attributes:
        name: File name for messages.
        context: The MLIR context; operations live as long as it does.
        mlir: The StableHLO module.
        hlo_proto: The input's HloModuleProto when it was HLO. While `changed` is False it is what gets written as HLO:
            a round trip through StableHLO would lose instruction names and inner layouts.
        hlo_counts: The numbers of replicas and partitions as the header of HLO text has them, after a comma each; no
            HloModuleProto has them.
        located: False when the input was text without locations: those that the parser made up from the text's lines
            serve messages and are not written out as if they were the user's.
        partly_located: Whether the input was text that may have locations for some operations only.
        changed: True once a pass has rewritten something.
    """

    name: str
    context: Any
    mlir: Any
    hlo_proto: bytes | None = None
    hlo_counts: str = ""
    located: bool = True
    partly_located: bool = False
    changed: bool = False
    _ssa_names: Any = field(default=None, init=False, repr=False, compare=False)
    _found_calls: Any = field(default=None, init=False, repr=False, compare=False)  # lowering.calls keeps it

    def operations_named(self, *names: str) -> list[Any]:
        """Returns the operations with one of these names in post order, taken now, so that they may be rewritten."""
        found: list[Any] = []

        def visit(op: Any) -> Any:
            if op.name in names:
                found.append(op)
            return ir.WalkResult.ADVANCE

        self.mlir.operation.walk(visit, ir.WalkOrder.POST_ORDER)
        return found

    def ssa_name(self, value: Any) -> str:
        """Returns the name under which the printed module shows a value, such as `%3`."""
        if self._ssa_names is None:
            self._ssa_names = ir.AsmState(self.mlir.operation)
        return str(value.get_name(self._ssa_names)).split("#")[0]

    def mark_changed(self) -> None:
        """Records that operations were rewritten: HLO is made from StableHLO from now on."""
        self.changed = True
        self._ssa_names = None
        if self._found_calls is not None:
            self._found_calls.by_target = None

    def clone(self) -> "Module":
        """Returns an independent copy in the same context."""
        with self.context:
            copy = ir.Module.parse(_compat.bytecode(self.mlir))
        return Module(
            name=self.name,
            context=self.context,
            mlir=copy,
            hlo_proto=self.hlo_proto,
            hlo_counts=self.hlo_counts,
            located=self.located,
            partly_located=self.partly_located,
            changed=self.changed,
        )

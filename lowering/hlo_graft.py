"""Puts implementations in the place of MX calls in a serialized HLO module, touching nothing else.

Inside XLA's compilation a module has fusions, layouts and backend configurations that would not survive a round trip
through StableHLO. So the module stays a protocol buffer: a custom call becomes a `call` of computations copied in.
"""

from collections.abc import Callable, Sequence

from lowering import hlo_proto as p
from lowering.calls import CUSTOM_CALL, describe
from lowering.diagnostics import Diagnostic, LoweringError, error
from lowering.expansion import MxOp, is_mx_target, operation_of
from lowering.hlo_adapter import is_tuple
from lowering.hlo_excerpt import Excerpt
from lowering.hlo_proto import Computation, Message, ModuleEdit
from lowering.module import Module
from lowering.reading import read_module

NEEDLES = (b"QuantizeMX", b"__op$block_scaled_dot", b"ScaledMatmul_")
"""A module without any of these has no MX call."""

_Found = tuple[Message, dict[int, Message]]
"""A call, and the instructions of its computation by id."""


def expand_in_proto(proto: bytes, implementation: Callable[[MxOp], bytes]) -> tuple[bytes, int]:
    """Puts the bit-exact implementation in the place of every MX call of a serialized HloModuleProto.

    Nothing else changes, not even what a round trip through StableHLO would lose.

    Args:
        proto: The module.
        implementation: Gives the HloModuleProto of what a call computes.

    Returns:
        The changed module and the number of calls.

    Raises:
        LoweringError: With the reason for every call that cannot be expanded.
    """
    edit = ModuleEdit(Message.parse(proto), NEEDLES)
    found = [
        (computation, {i.get_int(p.ID): i for i in computation.instructions}) for computation in edit.computations()
    ]
    calls = [(call, by_id) for computation, by_id in found for call in computation.instructions if _is_mx_call(call)]
    if not calls:
        return proto, 0
    operations = _operations_by_name(edit.module, calls)
    graft = _Graft(edit.module, implementation)
    for computation, by_id in found:
        for index, instruction in enumerate(computation.instructions):
            if _is_mx_call(instruction):
                name = instruction.get_bytes(p.NAME).decode()
                computation.instructions[index] = _call(instruction, by_id, graft.copy(operations[name]))
    return edit.serialize(graft.computations), len(calls)


def _is_mx_call(instruction: Message) -> bool:
    target = instruction.get_bytes(p.TARGET).decode(errors="replace")
    return instruction.get_bytes(p.OPCODE) == b"custom-call" and is_mx_target(target)


def _operations_by_name(original: Message, calls: Sequence[_Found]) -> dict[str, MxOp]:
    module = _read(original, calls)
    operations: dict[str, MxOp] = {}
    diagnostics: list[Diagnostic] = []
    with module.context:
        for op in module.operations_named(CUSTOM_CALL):
            call = describe(module, op)
            try:
                operations[call.name] = operation_of(call)
            except LoweringError as e:
                diagnostics += e.diagnostics
    if diagnostics:
        raise LoweringError(diagnostics)
    return operations


def _read(original: Message, calls: Sequence[_Found]) -> Module:
    """Reads a module's MX calls and nothing else of it, which jaxlib may be unable to convert."""
    excerpt = Excerpt(original)
    for call, by_id in calls:
        excerpt.add(call, by_id)
    try:
        return read_module(excerpt.serialize(), "XLA's module")
    except LoweringError as e:
        name = original.get_bytes(p.NAME).decode(errors="replace")
        targets = sorted({call.get_bytes(p.TARGET).decode(errors="replace") for call, _ in calls})
        # read_module speaks of the form of an input, which the user did not give; the reason comes after the colon.
        reason = e.diagnostics[0].cause.partition(": ")[2]
        raise error(
            "MX007",
            f"jaxlib cannot convert the calls of {', '.join(targets)} in XLA's own module {name}: {reason}",
            "correct the calls; their operands, results and configuration are all that was converted",
        ) from None


def _call(old: Message, by_id: dict[int, Message], entry: int) -> Message:
    """Returns a call instruction in place of a custom call: same name, shape, metadata and arrays."""
    arrays = []
    for operand in old.get_ints(p.OPERANDS):
        if not is_tuple(by_id[operand]):
            arrays.append(operand)
            _check_layout(by_id[operand].get_bytes(p.SHAPE), old)
    _check_layout(old.get_bytes(p.SHAPE), old)
    kept = (p.NAME, p.SHAPE, p.METADATA, p.ID, p.CONTROL_PREDECESSORS)
    new = Message([f for f in old.fields if f[0] in kept])
    new.set(p.OPCODE, b"call")
    new.set_ints(p.OPERANDS, arrays)
    new.set_ints(p.CALLED, [entry])
    return new


def _check_layout(shape: bytes, call: Message) -> None:
    parsed = Message.parse(shape)
    for element in parsed.all_bytes(p.SHAPE_TUPLE):
        _check_layout(element, call)
    minor_to_major = Message.parse(parsed.get_bytes(p.SHAPE_LAYOUT)).get_ints(p.LAYOUT_MINOR_TO_MAJOR)
    if minor_to_major != sorted(minor_to_major, reverse=True):
        name = call.get_bytes(p.NAME).decode()
        raise error(
            "MX007",
            f"{name} has an array with layout {minor_to_major}",
            "emit the call with row-major layouts, as jax.ffi does",
        )


class _Graft:
    """Copies expansions into a module under fresh ids and names.

    Every call gets a copy of its own: at this stage of XLA's compilation no two instructions call the same computation.
    """

    def __init__(self, module: Message, implementation: Callable[[MxOp], bytes]):
        self._implementation = implementation
        existing = [Message.parse(c) for c in module.all_bytes(p.MODULE_COMPUTATIONS)]
        self._next_id = 1 + max((c.get_int(p.COMPUTATION_ID) for c in existing), default=0)
        self.computations: list[Computation] = []

    def copy(self, operation: MxOp) -> int:
        """Adds what an operation computes; returns the id of the computation to call."""
        module = Message.parse(self._implementation(operation))
        computations = [Computation.parse(c) for c in module.all_bytes(p.MODULE_COMPUTATIONS)]
        new_ids = {c.message.get_int(p.COMPUTATION_ID): self._next_id + n for n, c in enumerate(computations)}
        self._next_id += len(computations)
        for computation in computations:
            self._renumber(computation, new_ids)
        self.computations += computations
        return new_ids[module.get_int(p.MODULE_ENTRY_ID)]

    @staticmethod
    def _renumber(computation: Computation, new_ids: dict[int, int]) -> None:
        message = computation.message
        own = new_ids[message.get_int(p.COMPUTATION_ID)]
        ids = {i.get_int(p.ID): own << 32 | n for n, i in enumerate(computation.instructions, start=1)}
        prefix = b"mx_expansion_%d." % own
        message.set(p.NAME, prefix + message.get_bytes(p.NAME))
        message.set(p.COMPUTATION_ID, own)
        message.set(p.COMPUTATION_ROOT, ids[message.get_int(p.COMPUTATION_ROOT)])
        for instruction in computation.instructions:
            instruction.set(p.NAME, prefix + instruction.get_bytes(p.NAME))
            for number in (p.OPERANDS, p.CONTROL_PREDECESSORS):
                instruction.set_ints(number, [ids[i] for i in instruction.get_ints(number)])
            instruction.set_ints(p.CALLED, [new_ids[c] for c in instruction.get_ints(p.CALLED)])
            instruction.set(p.ID, ids[instruction.get_int(p.ID)])
            # Metadata points into the stack frames of the module that the expansion comes from.
            instruction.fields = [f for f in instruction.fields if f[0] != p.METADATA]

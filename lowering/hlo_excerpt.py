"""A small HLO module with nothing but the MX calls of a large one.

XLA's own modules hold operations that jaxlib cannot convert to StableHLO, an all-to-all of its partitioner for example.
What MX calls say takes the calls alone: their arrays become parameters, and their metadata is copied.
"""

from lowering import hlo_proto as p
from lowering.hlo_adapter import constant_literal, is_tuple
from lowering.hlo_proto import VARINT, Computation, Message

_KEPT_OF_MODULE = (p.NAME, p.MODULE_STACK_FRAMES)
_LEFT_OF_CALL = (p.ID, p.OPERANDS, p.CONTROL_PREDECESSORS, p.CALLED)
_ID = 1
_TUPLE_SHAPE = Message([(p.SHAPE_ELEMENT_TYPE, VARINT, p.TUPLE_ELEMENT_TYPE)]).serialize()


class Excerpt:
    """Collects calls in one computation. Calls keep their names and places; all else is shared between them."""

    def __init__(self, module: Message):
        self._module = module
        self._bodies: dict[int, Computation] | None = None
        self._instructions: list[Message] = []
        self._shared: dict[bytes, int] = {}
        self._parameters: dict[bytes, int] = {}

    def add(self, call: Message, by_id: dict[int, Message]) -> None:
        """Adds a call.

        Args:
            call: The instruction; it is not changed.
            by_id: The instructions of its computation.
        """
        operands = [self._operand(by_id[i], by_id) for i in call.get_ints(p.OPERANDS)]
        copy = Message([f for f in call.fields if f[0] not in _LEFT_OF_CALL])
        copy.set_ints(p.OPERANDS, operands)
        self._append(copy)

    def serialize(self) -> bytes:
        """Returns the module, whose entry takes the arrays and returns nothing."""
        root = self._share(Message([(p.OPCODE, p.BYTES, b"tuple"), (p.SHAPE, p.BYTES, _TUPLE_SHAPE)]))
        entry = Message([(p.NAME, p.BYTES, b"main")])
        entry.set(p.COMPUTATION_ID, _ID)
        entry.set(p.COMPUTATION_ROOT, root)
        signature = Message()
        for shape in self._parameters:
            signature.add(p.SIGNATURE_PARAMETERS, shape)
            signature.add(p.SIGNATURE_PARAMETER_NAMES, b"")
        signature.set(p.SIGNATURE_RESULT, _TUPLE_SHAPE)
        module = Message([f for f in self._module.fields if f[0] in _KEPT_OF_MODULE])
        module.add(p.MODULE_COMPUTATIONS, Computation(entry, self._instructions).serialize())
        module.set(p.MODULE_SIGNATURE, signature.serialize())
        module.set(p.MODULE_ENTRY_NAME, b"main")
        module.set(p.MODULE_ENTRY_ID, _ID)
        return module.serialize()

    def _operand(self, operand: Message, by_id: dict[int, Message]) -> int:
        opcode = operand.get_bytes(p.OPCODE)
        if is_tuple(operand) and opcode == b"tuple":
            elements = [self._element(by_id[i], by_id) for i in operand.get_ints(p.OPERANDS)]
            copy = Message([(p.OPCODE, p.BYTES, opcode), (p.SHAPE, p.BYTES, operand.get_bytes(p.SHAPE))])
            copy.set_ints(p.OPERANDS, elements)
            return self._share(copy)
        if is_tuple(operand) and opcode == b"constant":
            return self._constant(operand, operand.get_bytes(p.LITERAL))
        return self._parameter(operand)

    def _element(self, element: Message, by_id: dict[int, Message]) -> int:
        literal = constant_literal(self._unwrapped(element), by_id)
        return self._parameter(element) if literal is None else self._constant(element, literal)

    def _unwrapped(self, instruction: Message) -> Message:
        """Returns the broadcast in place of a fusion of nothing else, in which XLA wraps it for the CPU."""
        if instruction.get_bytes(p.OPCODE) != b"fusion":
            return instruction
        (called,) = instruction.get_ints(p.CALLED)
        if self._bodies is None:
            bodies = map(Computation.parse, self._module.all_bytes(p.MODULE_COMPUTATIONS))
            self._bodies = {b.message.get_int(p.COMPUTATION_ID): b for b in bodies}
        opcodes = [i.get_bytes(p.OPCODE) for i in self._bodies[called].instructions]
        if sorted(opcodes) != [b"broadcast", b"parameter"]:
            return instruction
        broadcast = Message([f for f in instruction.fields if f[0] in (p.SHAPE, p.OPERANDS)])
        broadcast.set(p.OPCODE, b"broadcast")
        return broadcast

    def _constant(self, like: Message, literal: bytes) -> int:
        shape = like.get_bytes(p.SHAPE)
        return self._share(
            Message([(p.OPCODE, p.BYTES, b"constant"), (p.SHAPE, p.BYTES, shape), (p.LITERAL, p.BYTES, literal)])
        )

    def _parameter(self, like: Message) -> int:
        shape = like.get_bytes(p.SHAPE)
        number = self._parameters.setdefault(shape, len(self._parameters))
        return self._share(
            Message(
                [(p.OPCODE, p.BYTES, b"parameter"), (p.SHAPE, p.BYTES, shape), (p.PARAMETER_NUMBER, VARINT, number)]
            )
        )

    def _share(self, instruction: Message) -> int:
        key = instruction.serialize()
        if key not in self._shared:
            instruction.set(p.NAME, b"mx_excerpt.%d" % len(self._shared))
            self._shared[key] = self._append(instruction)
        return self._shared[key]

    def _append(self, instruction: Message) -> int:
        number = _ID << 32 | len(self._instructions) + 1
        instruction.set(p.ID, number)
        self._instructions.append(instruction)
        return number

"""The few edits of a HloModuleProto that jaxlib offers no function for.

jaxlib parses, prints and converts HLO, but its converter to StableHLO loses instruction names and refuses tuple
constants, and a legalized call carries its metadata as one tuple constant. Both ends of the HLO adapter therefore edit
the serialized module: a protocol buffer is a list of (number, wire type, value) fields, and unknown fields pass
through untouched, so the field numbers below are all there is to know of XLA's schema.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# XLA's hlo.proto and xla_data.proto.
MODULE_ENTRY_NAME, MODULE_COMPUTATIONS, MODULE_SIGNATURE, MODULE_ENTRY_ID, MODULE_STACK_FRAMES = 2, 3, 4, 6, 17
SIGNATURE_PARAMETERS, SIGNATURE_RESULT, SIGNATURE_PARAMETER_NAMES = 1, 2, 3
COMPUTATION_INSTRUCTIONS, COMPUTATION_ID, COMPUTATION_ROOT = 2, 5, 6
NAME, OPCODE, SHAPE, METADATA, LITERAL, PARAMETER_NUMBER, TARGET = 1, 2, 3, 7, 8, 9, 28
ID, OPERANDS, CONTROL_PREDECESSORS, CALLED, BACKEND_CONFIG, FRONTEND_ATTRIBUTES = 35, 36, 37, 38, 43, 68
API_VERSION, IS_COMPOSITE = 77, 89
SHAPE_ELEMENT_TYPE, SHAPE_DIMENSIONS, SHAPE_TUPLE, SHAPE_LAYOUT, LAYOUT_MINOR_TO_MAJOR = 2, 3, 4, 5, 1
TUPLE_ELEMENT_TYPE = 13
LITERAL_SHAPE, LITERAL_S64, LITERAL_TUPLE = 1, 5, 10


class ProtoError(ValueError):
    """The bytes are not a serialized message."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtoError(f"truncated or overlong integer at byte {at}")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass
class Message:
    """The fields of one message, in order: (number, wire type, value); a value is an int for varints, bytes else."""

    fields: list[tuple[int, int, int | bytes]] = field(default_factory=list)

    @classmethod
    def parse(cls, data: bytes) -> "Message":
        """Reads a serialized message. Raises ProtoError when `data` is not one."""
        fields: list[tuple[int, int, int | bytes]] = []
        at = 0
        while at < len(data):
            key, at = _varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == VARINT:
                value, at = _varint(data, at)
                fields.append((number, wire, value))
                continue
            if wire == BYTES:
                size, at = _varint(data, at)
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
            else:
                raise ProtoError(f"wire type {wire} at byte {at}")
            if at + size > len(data):
                raise ProtoError(f"field {number} runs past the end")
            fields.append((number, wire, data[at : at + size]))
            at += size
        return cls(fields)

    def serialize(self) -> bytes:
        """Returns the message as bytes, fields in their order."""
        out = bytearray()
        for number, wire, value in self.fields:
            out += _encode_varint(number << 3 | wire)
            if isinstance(value, int):
                out += _encode_varint(value)
            else:
                out += _encode_varint(len(value)) + value if wire == BYTES else value
        return bytes(out)

    def get_bytes(self, number: int) -> bytes:
        """Returns the last value of a bytes field, empty when absent."""
        found = b""
        for n, _, value in self.fields:
            if n == number and isinstance(value, bytes):
                found = value
        return found

    def get_int(self, number: int) -> int:
        """Returns the last value of an integer field, 0 when absent."""
        found = 0
        for n, _, value in self.fields:
            if n == number and isinstance(value, int):
                found = value
        return found

    def all_bytes(self, number: int) -> list[bytes]:
        """Returns every value of a repeated bytes or message field."""
        return [value for n, _, value in self.fields if n == number and isinstance(value, bytes)]

    def get_ints(self, number: int) -> list[int]:
        """Returns a repeated integer field, packed or not."""
        out: list[int] = []
        for n, wire, value in self.fields:
            if n != number:
                continue
            if wire == VARINT and isinstance(value, int):
                out.append(value)
            elif isinstance(value, bytes):
                at = 0
                while at < len(value):
                    item, at = _varint(value, at)
                    out.append(item)
        return out

    def set(self, number: int, value: int | bytes) -> None:
        """Replaces a field (appended when absent)."""
        self.remove(number)
        self.fields.append((number, VARINT if isinstance(value, int) else BYTES, value))

    def remove(self, number: int) -> None:
        """Removes a field, every value of it."""
        self.fields = [f for f in self.fields if f[0] != number]

    def set_ints(self, number: int, values: Iterable[int]) -> None:
        """Replaces a repeated integer field by a packed one."""
        self.set(number, b"".join(map(_encode_varint, values)))

    def add(self, number: int, value: bytes) -> None:
        """Appends one value to a repeated field."""
        self.fields.append((number, BYTES, value))


@dataclass
class Computation:
    """A HloComputationProto with its instructions taken apart; `message` holds the other fields."""

    message: Message
    instructions: list[Message]

    @classmethod
    def parse(cls, data: bytes) -> "Computation":
        """Reads a serialized HloComputationProto."""
        message = Message.parse(data)
        instructions = [Message.parse(i) for i in message.all_bytes(COMPUTATION_INSTRUCTIONS)]
        message.fields = [f for f in message.fields if f[0] != COMPUTATION_INSTRUCTIONS]
        return cls(message, instructions)

    def serialize(self) -> bytes:
        """Returns the computation as bytes; protocol buffers do not care where its instructions stand."""
        message = Message(list(self.message.fields))
        for instruction in self.instructions:
            message.add(COMPUTATION_INSTRUCTIONS, instruction.serialize())
        return message.serialize()


class ModuleEdit:
    """A module whose computations are edited in place; use `computations` and then `serialize`."""

    def __init__(self, module: Message, needles: tuple[bytes, ...]):
        self._module = module
        self._open: dict[int, Computation] = {}
        for index, (number, _, value) in enumerate(module.fields):
            wanted = number == MODULE_COMPUTATIONS and isinstance(value, bytes) and any(n in value for n in needles)
            if wanted and isinstance(value, bytes):
                self._open[index] = Computation.parse(value)

    def computations(self) -> Iterator[Computation]:
        """Yields the computations taken apart."""
        yield from self._open.values()

    @property
    def module(self) -> Message:
        """The module's own fields."""
        return self._module

    def serialize(self, first: Iterable[Computation] = ()) -> bytes:
        """Returns the edited module as bytes, with further computations before its own, which may call them."""
        for index, computation in self._open.items():
            self._module.fields[index] = (MODULE_COMPUTATIONS, BYTES, computation.serialize())
        added = [(MODULE_COMPUTATIONS, BYTES, c.serialize()) for c in first]
        return Message(added + self._module.fields).serialize()

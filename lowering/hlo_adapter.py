"""What happens to HLO just before it becomes StableHLO, and just after it is made from it.

On the way in, a tuple constant becomes a tuple of constants (jaxlib's converter knows no tuple literals) and each MX
call carries its instruction name in a frontend attribute (the converter drops names). On the way out, a tuple of
constants that feeds a legalized call becomes the one tuple constant that the hardware compiler's own pass makes.
"""

import math
from collections.abc import Callable

from lowering import hlo_proto as p
from lowering.hlo_proto import Computation, Message

NAME_ATTRIBUTE = "mx_instruction_name"
"""Frontend attribute that carries an HLO instruction's name while the module is StableHLO; never written out."""

QUANTIZE_TARGET = "QuantizeMX"
SCALED_DOT_TARGET = "__op$block_scaled_dot"
LEGALIZED_PREFIXES = ("QuantizeMX_", "ScaledMatmul_")
COMPOSITE_NAME = b"composite.name"
"""Frontend attribute by which XLA tells a composite's name."""

_TYPED_FFI = 4


def prepare_for_stablehlo(proto: bytes, name_needles: tuple[bytes, ...], is_dictionary: Callable[[str], bool]) -> bytes:
    """Returns the module in a form that jaxlib's converter takes without losing or refusing what matters here.

    Tuple constants are taken apart, composites with several results unwrapped, and names attached to calls that may be
    MX calls.

    Args:
        proto: A serialized HloModuleProto.
        name_needles: Lower-case pieces of custom call targets whose instruction name must survive.
        is_dictionary: Whether a text is an MLIR dictionary attribute; the converter crashes on a call of the typed FFI
            whose configuration is none.

    Raises:
        ProtoError: When the bytes are not a module, or a typed FFI call has no dictionary.
    """
    edit = p.ModuleEdit(Message.parse(proto), (b"custom-call", b"constant", COMPOSITE_NAME))
    for computation in edit.computations():
        _unfold_tuple_constants(computation)
        for instruction in computation.instructions:
            if instruction.get_int(p.IS_COMPOSITE) and is_tuple(instruction):
                _unwrap_composite(instruction, name_needles)
            if instruction.get_bytes(p.OPCODE) == b"custom-call":
                _check_typed_ffi(instruction, is_dictionary)
                target = instruction.get_bytes(p.TARGET).lower()
                if any(needle in target for needle in name_needles):
                    add_frontend_attribute(instruction, NAME_ATTRIBUTE.encode(), instruction.get_bytes(p.NAME))
    return edit.serialize()


def _unwrap_composite(call: Message, name_needles: tuple[bytes, ...]) -> None:
    """Makes a custom call of a composite named `QuantizeMX`, and a plain call of any other.

    jaxlib's converter makes an invalid composite of one that has several results.
    """
    attributes = Message.parse(call.get_bytes(p.FRONTEND_ATTRIBUTES))
    entries = {m.get_bytes(1): m.get_bytes(2) for m in map(Message.parse, attributes.all_bytes(1))}
    call.remove(p.IS_COMPOSITE)
    name = entries.get(COMPOSITE_NAME, b"")
    if name.rpartition(b".")[2] != QUANTIZE_TARGET.encode():
        if any(needle in name.lower() for needle in name_needles):
            add_frontend_attribute(call, NAME_ATTRIBUTE.encode(), call.get_bytes(p.NAME))
        return
    call.remove(p.CALLED)
    call.remove(p.FRONTEND_ATTRIBUTES)
    for key, value in entries.items():
        if not key.startswith(b"composite."):
            add_frontend_attribute(call, key, value)
    call.set(p.OPCODE, b"custom-call")
    call.set(p.TARGET, QUANTIZE_TARGET.encode())
    call.set(p.API_VERSION, _TYPED_FFI)
    call.set(p.BACKEND_CONFIG, entries.get(b"composite.attributes", b"{}"))


def _check_typed_ffi(call: Message, is_dictionary: Callable[[str], bool]) -> None:
    config = call.get_bytes(p.BACKEND_CONFIG)
    if call.get_int(p.API_VERSION) == _TYPED_FFI and config and not is_dictionary(config.decode(errors="replace")):
        name = call.get_bytes(p.NAME).decode(errors="replace")
        raise p.ProtoError(f"the backend_config of {name}, a typed FFI call, is not an MLIR dictionary")


def fold_metadata_constants(proto: bytes) -> bytes:
    """Returns the module in which every legalized call's metadata operand is one tuple constant."""
    needles = tuple(prefix.encode() for prefix in LEGALIZED_PREFIXES)
    edit = p.ModuleEdit(Message.parse(proto), needles)
    for computation in edit.computations():
        _fold(computation, needles)
    return edit.serialize()


def has_nested_tuples(proto: bytes) -> bool:
    """Whether the entry takes a tuple or returns a tuple in a tuple; jaxlib's converter flattens both."""
    signature = Message.parse(Message.parse(proto).get_bytes(p.MODULE_SIGNATURE))
    parameters = [Message.parse(shape) for shape in signature.all_bytes(p.SIGNATURE_PARAMETERS)]
    result = Message.parse(signature.get_bytes(p.SIGNATURE_RESULT))
    shapes = parameters + [Message.parse(shape) for shape in result.all_bytes(p.SHAPE_TUPLE)]
    return any(shape.get_int(p.SHAPE_ELEMENT_TYPE) == p.TUPLE_ELEMENT_TYPE for shape in shapes)


def add_frontend_attribute(instruction: Message, key: bytes, value: bytes) -> None:
    """Adds one entry to an instruction's frontend attributes (a map<string, string>)."""
    attributes = Message.parse(instruction.get_bytes(p.FRONTEND_ATTRIBUTES))
    attributes.add(1, Message([(1, p.BYTES, key), (2, p.BYTES, value)]).serialize())
    instruction.set(p.FRONTEND_ATTRIBUTES, attributes.serialize())


def _unfold_tuple_constants(computation: Computation) -> None:
    next_id = 1 + max((i.get_int(p.ID) for i in computation.instructions), default=0)
    out: list[Message] = []

    def unfold(shape: bytes, literal: Message, name: bytes) -> Message:
        nonlocal next_id
        instruction = Message([(p.NAME, p.BYTES, name)])
        if Message.parse(shape).get_int(p.SHAPE_ELEMENT_TYPE) == p.TUPLE_ELEMENT_TYPE:
            element_shapes = Message.parse(shape).all_bytes(p.SHAPE_TUPLE)
            elements = zip(element_shapes, literal.all_bytes(p.LITERAL_TUPLE), strict=True)
            ids = []
            for index, (element_shape, element) in enumerate(elements):
                constant = unfold(element_shape, Message.parse(element), name + b".element.%d" % index)
                constant.set(p.ID, next_id)
                ids.append(next_id)
                next_id += 1
                out.append(constant)
            instruction.set(p.OPCODE, b"tuple")
            instruction.set_ints(p.OPERANDS, ids)
        else:
            instruction.set(p.OPCODE, b"constant")
            instruction.set(p.LITERAL, literal.serialize())
        instruction.set(p.SHAPE, shape)
        return instruction

    for instruction in computation.instructions:
        literal = instruction.get_bytes(p.LITERAL)
        if instruction.get_bytes(p.OPCODE) == b"constant" and is_tuple(instruction):
            whole = unfold(instruction.get_bytes(p.SHAPE), Message.parse(literal), instruction.get_bytes(p.NAME))
            kept = [f for f in instruction.fields if f[0] not in (p.NAME, p.OPCODE, p.SHAPE, p.LITERAL, p.OPERANDS)]
            out.append(Message(whole.fields + kept))
        else:
            out.append(instruction)
    computation.instructions = out


def is_tuple(instruction: Message) -> bool:
    """Whether an instruction gives a tuple."""
    return Message.parse(instruction.get_bytes(p.SHAPE)).get_int(p.SHAPE_ELEMENT_TYPE) == p.TUPLE_ELEMENT_TYPE


def _fold(computation: Computation, prefixes: tuple[bytes, ...]) -> None:
    by_id = {i.get_int(p.ID): i for i in computation.instructions}
    uses: dict[int, int] = {computation.message.get_int(p.COMPUTATION_ROOT): 1}
    for instruction in computation.instructions:
        for operand in instruction.get_ints(p.OPERANDS) + instruction.get_ints(p.CONTROL_PREDECESSORS):
            uses[operand] = uses.get(operand, 0) + 1
    removed: set[int] = set()

    def drop_use(unused: int) -> None:
        uses[unused] -= 1
        if uses[unused] == 0:
            removed.add(unused)
            for operand in by_id[unused].get_ints(p.OPERANDS):
                drop_use(operand)

    for call in computation.instructions:
        if not call.get_bytes(p.TARGET).startswith(prefixes):
            continue
        for operand in call.get_ints(p.OPERANDS):
            whole = by_id.get(operand)
            if whole is None or whole.get_bytes(p.OPCODE) != b"tuple":
                continue
            ids = whole.get_ints(p.OPERANDS)
            literals = [constant_literal(by_id[i], by_id) for i in ids]
            if None in literals:
                continue
            literal = Message([(p.LITERAL_SHAPE, p.BYTES, whole.get_bytes(p.SHAPE))])
            for element in literals:
                literal.add(p.LITERAL_TUPLE, element or b"")
            whole.set(p.OPCODE, b"constant")
            whole.set(p.LITERAL, literal.serialize())
            whole.fields = [f for f in whole.fields if f[0] != p.OPERANDS]
            for i in ids:
                drop_use(i)
    computation.instructions = [i for i in computation.instructions if i.get_int(p.ID) not in removed]


def constant_literal(instruction: Message, by_id: dict[int, Message]) -> bytes | None:
    """Returns the literal of a constant, also of one that jaxlib wrote as a broadcast s64 scalar; None for all else."""
    opcode = instruction.get_bytes(p.OPCODE)
    if opcode == b"constant":
        return instruction.get_bytes(p.LITERAL)
    if opcode != b"broadcast":
        return None
    scalar = by_id[instruction.get_ints(p.OPERANDS)[0]]
    values = Message.parse(scalar.get_bytes(p.LITERAL)).get_ints(p.LITERAL_S64)
    if scalar.get_bytes(p.OPCODE) != b"constant" or not values:
        return None
    shape = instruction.get_bytes(p.SHAPE)
    count = math.prod(Message.parse(shape).get_ints(p.SHAPE_DIMENSIONS))
    literal = Message([(p.LITERAL_SHAPE, p.BYTES, shape)])
    literal.set_ints(p.LITERAL_S64, values * count)
    return literal.serialize()

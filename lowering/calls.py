"""Finds MX calls in a module, in every spelling, and states the facts of each.

`match` only reads. What it returns is plain data (shapes as HLO spells them, configuration as JSON text), so that the
rules that judge a call and the table that shows it need no IR.
"""

import enum
from dataclasses import dataclass, field
from typing import Any

from lowering import hlo_adapter
from lowering._compat import ir
from lowering.attributes import dictionary, entries_of, integers_of, json_text, text_of
from lowering.config import QuantizeMxConfig, parse_json
from lowering.diagnostics import SourceLocation, shorten
from lowering.locations import source_of
from lowering.module import Module
from lowering.shapes import ArrayShape as ArrayShape
from lowering.shapes import array_shape as array_shape

QUANTIZE_TARGET = hlo_adapter.QUANTIZE_TARGET
SCALED_DOT_TARGET = hlo_adapter.SCALED_DOT_TARGET
SCALE_RULE_ATTRIBUTE = "mx_scale_rule"
"""Frontend attribute that carries the name of a scale rule other than EMAX."""

CUSTOM_CALL, COMPOSITE = "stablehlo.custom_call", "stablehlo.composite"
_SAYING_ATTRIBUTES = (
    "call_target_name",
    "name",
    "api_version",
    "backend_config",
    "mhlo.backend_config",
    "composite_attributes",
)
FRONTEND_ATTRIBUTES, MHLO_BACKEND_CONFIG = "mhlo.frontend_attributes", "mhlo.backend_config"


class Spelling(enum.StrEnum):
    """How a call is written in the IR."""

    STRING = "string backend_config"
    DICTIONARY = "api_version 4 dictionary"
    MHLO_DICTIONARY = "mhlo.backend_config dictionary"
    COMPOSITE = "stablehlo.composite"


Metadata = tuple[int | tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Signature:
    """What a call says, its name and place aside. Calls of a module that say the same share one; it equals no other.

    Attributes:
        target: Custom call target, or the composite's name without its namespace.
        spelling: How it is written.
        api_version: The custom call's api version (1 for a composite).
        operands: Shapes of the operands.
        results: Shapes of the results, those inside the tuple when the result is one tuple.
        is_tuple: Whether the operation has one result of tuple type.
        config: Configuration as JSON text, None when there is none.
        scale_rule: Name of the scale rule that the frontend attribute carries, or else the configuration of a quantize
            call; None when neither does.
        scale_rule_problem: Why the scale rule cannot be told, empty when it can.
        metadata: Metadata of a legalized call, None when the call has none.
    """

    target: str
    spelling: Spelling
    api_version: int
    operands: tuple[ArrayShape, ...]
    results: tuple[ArrayShape, ...]
    is_tuple: bool
    config: str | None
    scale_rule: str | None
    scale_rule_problem: str = ""
    metadata: Metadata | None = None

    @property
    def shapes(self) -> str:
        """The call as HLO would spell it: `(u32[4,16], u8[4,2]) QuantizeMX(bf16[4,64])`."""
        results = ", ".join(map(str, self.results))
        if self.is_tuple or len(self.results) != 1:
            results = f"({results})"
        return f"{results} {self.target}({', '.join(map(str, self.operands))})"


@dataclass(slots=True, eq=False)
class Call:
    """One custom call or composite, as found.

    Attributes:
        op: The MLIR operation.
        module: The module it is in.
        signature: What it says.
    """

    op: Any
    module: Module
    signature: Signature

    @property
    def name(self) -> str:
        """Instruction name in the input: the HLO name, or the SSA name in StableHLO. Ask before rewriting the call."""
        carried = dictionary(self.op.attributes, FRONTEND_ATTRIBUTES).get(hlo_adapter.NAME_ATTRIBUTE)
        if carried is not None:
            return carried
        return self.module.ssa_name(self.op.results[0]) if len(self.op.results) else str(self.op.name)

    @property
    def location(self) -> SourceLocation | None:
        """The user's source line. Ask before rewriting the call."""
        return source_of(self.op.location, self.module.name)

    @property
    def target(self) -> str:
        """Target of the custom call."""
        return self.signature.target

    @property
    def spelling(self) -> Spelling:
        """How the call is written."""
        return self.signature.spelling

    @property
    def operands(self) -> tuple[ArrayShape, ...]:
        """Shapes of the operands."""
        return self.signature.operands

    @property
    def results(self) -> tuple[ArrayShape, ...]:
        """Shapes of the results."""
        return self.signature.results

    @property
    def scale_rule(self) -> str | None:
        """Name of the scale rule that the call carries."""
        return self.signature.scale_rule

    @property
    def metadata(self) -> Metadata | None:
        """Metadata of a legalized call."""
        return self.signature.metadata

    @property
    def shapes(self) -> str:
        """The call as HLO would spell it."""
        return self.signature.shapes


@dataclass(slots=True)
class _FoundCalls:
    """What this file has found out about a module, which it asks of the IR once.

    Attributes:
        signatures: Signatures by what the calls say.
        by_target: Custom calls and composites by target, while the module stays the same.
        matches: Calls that a pass has matched and not yet rewritten, by the pass's name.
    """

    signatures: dict[Any, Signature] = field(default_factory=dict)
    by_target: dict[str, list[Any]] | None = None
    matches: dict[str, list[Call]] = field(default_factory=dict)


def _found(module: Module) -> _FoundCalls:
    if module._found_calls is None:
        module._found_calls = _FoundCalls()
    found: _FoundCalls = module._found_calls
    return found


def _by_target(module: Module) -> dict[str, list[Any]]:
    found = _found(module)
    if found.by_target is None:
        found.by_target = {}
        for op in module.operations_named(CUSTOM_CALL, COMPOSITE):
            found.by_target.setdefault(target_of(op), []).append(op)
    return found.by_target


def targets(module: Module) -> set[str]:
    """Returns the targets of all custom calls and composites."""
    return set(_by_target(module))


def match(module: Module, target: str) -> list[Call]:
    """Returns the calls of exactly this target in post order, whatever their spelling."""
    return [describe(module, op) for op in _by_target(module).get(target, ())]


def match_ahead(module: Module, target: str, owner: str) -> list[Call]:
    """Matches, and keeps the calls until the pass named `owner` takes them: matching twice takes time."""
    calls = _found(module).matches[owner] = match(module, target)
    return calls


def take_matches(module: Module, target: str, owner: str) -> list[Call]:
    """Returns the calls that were kept for a pass, and keeps them no longer; matches now when there are none."""
    kept = _found(module).matches.pop(owner, None)
    return match(module, target) if kept is None else kept


def forget_matches(module: Module) -> None:
    """Forgets the calls that were kept for passes: some may have been erased. Passes match anew."""
    _found(module).matches.clear()


def target_of(op: Any) -> str:
    """Returns the target of a custom call, or a composite's name without its namespace.

    StableHLO wants a namespace in a composite's name (`vendor.QuantizeMX`); which one is the author's choice.
    """
    if op.name == CUSTOM_CALL:
        return text_of(op.attributes["call_target_name"])
    return text_of(op.attributes["name"]).rpartition(".")[2]


def describe(module: Module, op: Any) -> Call:
    """States the facts of one custom call or composite."""
    attributes = op.attributes
    operand_types = tuple([o.type for o in op.operands])
    result_types = tuple(op.results.types)
    scale_rule = _scale_rule_attribute(attributes)
    metadata = _metadata(op) if any(isinstance(t, ir.TupleType) for t in operand_types) else None
    said = tuple([attributes.get(name) for name in _SAYING_ATTRIBUTES])
    key = (op.name, operand_types, result_types, scale_rule, metadata, said)
    signatures = _found(module).signatures
    signature = signatures.get(key)
    if signature is None:
        signature = signatures[key] = _signature(op, operand_types, result_types, scale_rule, metadata)
    return Call(op, module, signature)


def _signature(
    op: Any, operand_types: tuple[Any, ...], result_types: tuple[Any, ...], attribute: Any, metadata: Any
) -> Signature:
    is_tuple = len(result_types) == 1 and isinstance(result_types[0], ir.TupleType)
    if is_tuple:
        inner = result_types[0]
        result_types = tuple(inner.get_type(i) for i in range(inner.num_types))
    spelling, config = _config(op)
    target = target_of(op)
    scale_rule, scale_rule_problem = _scale_rule(attribute, config if target == QUANTIZE_TARGET else None)
    return Signature(
        target=target,
        spelling=spelling,
        api_version=int(op.attributes["api_version"]) if "api_version" in op.attributes else 1,
        operands=tuple(map(array_shape, operand_types)),
        results=tuple(map(array_shape, result_types)),
        is_tuple=is_tuple,
        config=config,
        scale_rule=scale_rule,
        scale_rule_problem=scale_rule_problem,
        metadata=metadata,
    )


def _scale_rule_attribute(attributes: Any) -> Any:
    """Returns the frontend attribute that names the scale rule, None when there is none."""
    if FRONTEND_ATTRIBUTES not in attributes:
        return None
    entries = entries_of(attributes, FRONTEND_ATTRIBUTES)
    return entries[SCALE_RULE_ATTRIBUTE] if SCALE_RULE_ATTRIBUTE in entries else None  # noqa: SIM401  get() makes one


def _scale_rule(attribute: Any, config: str | None) -> tuple[str | None, str]:
    """Returns the scale rule of the frontend attribute, else that of the configuration, and what is wrong with both."""
    values = {} if config is None else parse_json(config, QuantizeMxConfig).values
    configured = str(values.get(SCALE_RULE_ATTRIBUTE, "")) or None
    if attribute is None:
        return configured, ""
    if not isinstance(attribute, ir.StringAttr):
        found = shorten(str(attribute))
        return configured, f"frontend attribute {SCALE_RULE_ATTRIBUTE} is {found}, not a string"
    rule = text_of(attribute)
    if configured is not None and configured != rule:
        said = f"frontend attribute {SCALE_RULE_ATTRIBUTE} is '{shorten(rule)}'"
        return rule, f"{said} and backend_config says '{shorten(configured)}'"
    return rule, ""


def _metadata(op: Any) -> Metadata | None:
    """Returns the metadata of a legalized call: its tuple operand's constants. None when there is no such operand."""
    for operand in op.operands:
        producer = operand.owner
        if isinstance(operand.type, ir.TupleType) and getattr(producer, "name", "") == "stablehlo.tuple":
            values = [_constant_value(part.owner) for part in producer.operands]
            return tuple(v for v in values if v is not None) if None not in values else None
    return None


def _constant_value(producer: Any) -> int | tuple[int, ...] | None:
    if getattr(producer, "name", "") != "stablehlo.constant":
        return None
    return integers_of(producer.attributes["value"])


def _config(op: Any) -> tuple[Spelling, str | None]:
    attributes = op.attributes
    if op.name == COMPOSITE:
        if "composite_attributes" not in attributes:
            return Spelling.COMPOSITE, None
        return Spelling.COMPOSITE, json_text(attributes["composite_attributes"])
    if MHLO_BACKEND_CONFIG in attributes:
        return Spelling.MHLO_DICTIONARY, json_text(attributes[MHLO_BACKEND_CONFIG])
    if "backend_config" not in attributes:
        return Spelling.STRING, None
    config = attributes["backend_config"]
    if isinstance(config, ir.StringAttr):
        # An empty string is what jaxlib writes for an absent configuration.
        return Spelling.STRING, text_of(config) or None
    return Spelling.DICTIONARY, json_text(config)

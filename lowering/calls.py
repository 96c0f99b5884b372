"""Finds MX calls in a module, in every spelling, and states the facts of each.

`match` only reads. What it returns is plain data (shapes as HLO spells them, configuration as JSON text), so that the
rules that judge a call and the table that shows it need no IR.
"""

import dataclasses
import enum
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowering import hlo_adapter
from lowering._compat import ir
from lowering.diagnostics import SourceLocation, error
from lowering.locations import source_of
from lowering.module import Module

QUANTIZE_TARGET = hlo_adapter.QUANTIZE_TARGET
SCALED_DOT_TARGET = hlo_adapter.SCALED_DOT_TARGET
SCALE_RULE_ATTRIBUTE = "mx_scale_rule"
"""Frontend attribute that carries the name of a scale rule other than EMAX."""

CUSTOM_CALL, COMPOSITE = "stablehlo.custom_call", "stablehlo.composite"
FRONTEND_ATTRIBUTES, MHLO_BACKEND_CONFIG = "mhlo.frontend_attributes", "mhlo.backend_config"


_NO_ARRAYS = ("token", "opaque")


class Spelling(enum.StrEnum):
    """How a call is written in the IR."""

    STRING = "string backend_config"
    DICTIONARY = "api_version 4 dictionary"
    MHLO_DICTIONARY = "mhlo.backend_config dictionary"
    COMPOSITE = "stablehlo.composite"


@dataclass(frozen=True)
class ArrayShape:
    """Element type and dimensions of one value; None is a dynamic dimension.

    What is no array has no dimensions, and its kind as element type: `token`, or a tuple's elements in parentheses.
    """

    element_type: str
    dims: tuple[int | None, ...] = ()

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return None not in self.dims

    @property
    def static_dims(self) -> tuple[int, ...]:
        """The dimensions, dynamic ones left out; callers check `is_static` first."""
        return tuple(d for d in self.dims if d is not None)

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple."""
        return self.element_type.startswith("(")

    def __str__(self) -> str:
        if self.is_tuple or self.element_type in _NO_ARRAYS:
            return self.element_type
        return f"{self.element_type}[{','.join('?' if d is None else str(d) for d in self.dims)}]"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One custom call or composite, as found.

    Attributes:
        op: The MLIR operation.
        name: Instruction name in the input: the HLO name, or the SSA name in StableHLO.
        target: Custom call target, or the composite's name without its namespace.
        spelling: How it is written.
        api_version: The custom call's api version (1 for a composite).
        operands: Shapes of the operands.
        results: Shapes of the results, those inside the tuple when the result is one tuple.
        is_tuple: Whether the operation has one result of tuple type.
        config: Configuration as JSON text, None when there is none.
        scale_rule: Name of the scale rule that the frontend attributes carry, None when they carry none.
        location: The user's source line.
        metadata: Metadata of a legalized call, None when the call has none.
    """

    op: Any
    name: str
    target: str
    spelling: Spelling
    api_version: int
    operands: tuple[ArrayShape, ...]
    results: tuple[ArrayShape, ...]
    is_tuple: bool
    config: str | None
    scale_rule: str | None
    location: SourceLocation | None
    metadata: tuple[int | tuple[int, ...], ...] | None = None

    def with_operands(self, operands: tuple[ArrayShape, ...]) -> "Call":
        """Returns the same call seen with these operands only."""
        return dataclasses.replace(self, operands=operands)

    @property
    def shapes(self) -> str:
        """The call as HLO would spell it: `(u32[4,16], u8[4,2]) QuantizeMX(bf16[4,64])`."""
        results = ", ".join(map(str, self.results))
        if self.is_tuple or len(self.results) != 1:
            results = f"({results})"
        return f"{results} {self.target}({', '.join(map(str, self.operands))})"


def match(module: Module, target: str) -> list[Call]:
    """Returns the calls of exactly this target in post order, whatever their spelling."""
    return [describe(module, op) for op in module.operations_named(CUSTOM_CALL, COMPOSITE) if target_of(op) == target]


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
    frontend = dictionary(attributes, FRONTEND_ATTRIBUTES)
    result_types = [r.type for r in op.results]
    is_tuple = len(result_types) == 1 and isinstance(result_types[0], ir.TupleType)
    if is_tuple:
        inner = result_types[0]
        result_types = [inner.get_type(i) for i in range(inner.num_types)]
    spelling, config = _config(op)
    return Call(
        op=op,
        name=_name(module, op, frontend),
        target=target_of(op),
        spelling=spelling,
        api_version=int(attributes["api_version"]) if "api_version" in attributes else 1,
        operands=tuple(array_shape(o.type) for o in op.operands),
        results=tuple(array_shape(t) for t in result_types),
        is_tuple=is_tuple,
        config=config,
        scale_rule=frontend.get(SCALE_RULE_ATTRIBUTE),
        location=source_of(op.location, module.name),
        metadata=_metadata(op),
    )


def _metadata(op: Any) -> tuple[int | tuple[int, ...], ...] | None:
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
    value = producer.attributes["value"]
    if not isinstance(value, ir.DenseElementsAttr) or not isinstance(value.type.element_type, ir.IntegerType):
        return None
    values = np.asarray(value)
    return tuple(map(int, values)) if values.ndim else int(values)


def array_shape(mlir_type: Any) -> ArrayShape:
    """Returns a type as HLO spells it."""
    if isinstance(mlir_type, ir.TupleType):
        elements = (array_shape(mlir_type.get_type(i)) for i in range(mlir_type.num_types))
        return ArrayShape(f"({', '.join(map(str, elements))})")
    if not isinstance(mlir_type, ir.RankedTensorType):
        return ArrayShape("token" if "token" in str(mlir_type) else "opaque")
    dims = tuple(None if mlir_type.is_dynamic_dim(i) else d for i, d in enumerate(mlir_type.shape))
    return ArrayShape(_element_type(str(mlir_type.element_type)), dims)


def dictionary(attributes: Any, name: str) -> dict[str, str]:
    """Returns a dictionary attribute of strings, empty when absent."""
    if name not in attributes:
        return {}
    return {a.name: text_of(a.attr) for a in attributes[name] if isinstance(a.attr, ir.StringAttr)}


def text_of(attribute: Any) -> str:
    """Returns the text of a string attribute. Raises LoweringError (MX002) when it is not UTF-8."""
    try:
        return str(attribute.value)
    except (RuntimeError, UnicodeDecodeError):
        raise error("MX002", f"the attribute {attribute} is not UTF-8 text", "write it as UTF-8") from None


_HLO_ELEMENT_TYPES = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def _element_type(mlir: str) -> str:
    if mlir in _HLO_ELEMENT_TYPES:
        return _HLO_ELEMENT_TYPES[mlir]
    if mlir.startswith("ui"):
        return f"u{mlir[2:]}"
    if mlir.startswith("i"):
        return f"s{mlir[1:]}"
    return mlir.lower()


def _name(module: Module, op: Any, frontend: dict[str, str]) -> str:
    if hlo_adapter.NAME_ATTRIBUTE in frontend:
        return frontend[hlo_adapter.NAME_ATTRIBUTE]
    return module.ssa_name(op.results[0]) if len(op.results) else op.name


def _config(op: Any) -> tuple[Spelling, str | None]:
    attributes = op.attributes
    if op.name == COMPOSITE:
        if "composite_attributes" not in attributes:
            return Spelling.COMPOSITE, None
        return Spelling.COMPOSITE, _json_text(attributes["composite_attributes"])
    if MHLO_BACKEND_CONFIG in attributes:
        return Spelling.MHLO_DICTIONARY, _json_text(attributes[MHLO_BACKEND_CONFIG])
    if "backend_config" not in attributes:
        return Spelling.STRING, None
    config = attributes["backend_config"]
    if isinstance(config, ir.StringAttr):
        # An empty string is what jaxlib writes for an absent configuration.
        return Spelling.STRING, text_of(config) or None
    return Spelling.DICTIONARY, _json_text(config)


def _json_text(attribute: Any) -> str:
    return json.dumps(_json_value(attribute), sort_keys=True, separators=(",", ":"))


def _json_value(attribute: Any) -> Any:
    """Returns an MLIR attribute as JSON types; what has no JSON type becomes its text, which no rule accepts."""
    if isinstance(attribute, ir.DictAttr):
        return {a.name: _json_value(a.attr) for a in attribute}
    if isinstance(attribute, ir.ArrayAttr | ir.DenseI64ArrayAttr | ir.DenseI32ArrayAttr):
        return [_json_value(a) for a in attribute]
    if isinstance(attribute, ir.DenseElementsAttr) and isinstance(attribute.type.element_type, ir.IntegerType):
        return np.asarray(attribute).tolist()
    if isinstance(attribute, ir.StringAttr):
        return text_of(attribute)
    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr):
        return attribute.value
    if isinstance(attribute, str | bool | int | float):
        return attribute
    return str(attribute)

"""Reads MLIR attributes as plain Python: texts, dictionaries of texts, integers, and configurations as JSON text."""

import json
from typing import Any

import numpy as np

from lowering._compat import ir
from lowering.diagnostics import error, shorten

_DEEPEST, _LONGEST_ARRAY, _WIDEST_INTEGER = 100, 2**16, 1024
"""Attributes of a configuration or of metadata that exceed these are not read: none that means something does."""


def dictionary(attributes: Any, name: str) -> dict[str, str]:
    """Returns the strings of a dictionary attribute, empty when absent. Raises LoweringError (MX002) for another."""
    if name not in attributes:
        return {}
    return {a.name: text_of(a.attr) for a in entries_of(attributes, name) if isinstance(a.attr, ir.StringAttr)}


def entries_of(attributes: Any, name: str) -> Any:
    """Returns a dictionary attribute. Raises LoweringError (MX002) when it is another."""
    entries = attributes[name]
    if not isinstance(entries, ir.DictAttr):
        raise error("MX002", f"the attribute {name} is {shorten(str(entries))}", "make it a dictionary of strings")
    return entries


def text_of(attribute: Any) -> str:
    """Returns the text of a string attribute. Raises LoweringError (MX002) when it is not UTF-8."""
    try:
        return str(attribute.value)
    except (RuntimeError, UnicodeDecodeError):
        raise error(
            "MX002", f"the attribute {shorten(str(attribute))} is not UTF-8 text", "write it as UTF-8"
        ) from None


def integers_of(value: Any) -> int | tuple[int, ...] | None:
    """Returns a scalar or a vector of integers; None for all else, and for those that numpy does not have."""
    if not isinstance(value, ir.DenseElementsAttr) or not isinstance(value.type.element_type, ir.IntegerType):
        return None
    try:
        values = np.asarray(value)
    except TypeError:  # no integers that numpy has, such as those of 4 bits
        return None
    if values.ndim > 1 or values.size > _LONGEST_ARRAY:
        return None
    return tuple(map(int, values)) if values.ndim else int(values)


def json_text(attribute: Any) -> str:
    """Returns a configuration as JSON text. A value that is nested too deeply has none, and the text says so there."""
    if not isinstance(attribute, ir.DictAttr):
        return _json_of_value(attribute)
    members = sorted((a.name, _json_of_value(a.attr)) for a in attribute)
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members) + "}"


def _json_of_value(attribute: Any) -> str:
    try:
        return json.dumps(_json_value(attribute), sort_keys=True, separators=(",", ":"))
    except _TooDeepError:
        return f"<nested more than {_DEEPEST} deep>"


class _TooDeepError(Exception):
    """Attributes nest deeper than Python calls functions."""


def _json_value(attribute: Any, depth: int = 0) -> Any:
    """Returns an MLIR attribute as JSON types; what has no JSON type becomes its text, which no rule accepts."""
    if depth > _DEEPEST:
        raise _TooDeepError
    if isinstance(attribute, ir.DictAttr):
        return {a.name: _json_value(a.attr, depth + 1) for a in attribute}
    if isinstance(attribute, ir.ArrayAttr | ir.DenseI64ArrayAttr | ir.DenseI32ArrayAttr):
        return [_json_value(a, depth + 1) for a in attribute]
    if isinstance(attribute, ir.DenseElementsAttr) and isinstance(attribute.type.element_type, ir.IntegerType):
        return _json_array(attribute)
    if isinstance(attribute, ir.StringAttr):
        return text_of(attribute)
    wide = isinstance(attribute, ir.IntegerAttr) and isinstance(attribute.type, ir.IntegerType)
    if wide and attribute.type.width > _WIDEST_INTEGER:
        return str(attribute)  # Python refuses to spell integers of thousands of digits
    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr):
        return attribute.value
    if isinstance(attribute, str | bool | int | float):
        return attribute
    return str(attribute)


def _json_array(attribute: Any) -> Any:
    if len(attribute) > _LONGEST_ARRAY:
        return str(attribute)  # one value may stand for a billion equal ones
    try:
        return np.asarray(attribute).tolist()
    except TypeError:  # no integers that numpy has, such as those of 4 bits
        return str(attribute)

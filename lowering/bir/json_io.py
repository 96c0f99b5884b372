"""Reads and writes BIR JSON: one walk over the dataclasses of `program`, in both directions.

Written text is canonical (keys sorted, indent 2, one newline at the end), so equal programs give equal bytes. Unknown
keys are carried along unchanged. A malformed text gives an error that starts with the JSON path of what is wrong.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from lowering.bir.dtypes import DTYPES, Dtype, dtype_named
from lowering.bir.errors import BirFormatError
from lowering.bir.program import AccessPattern, EdgeKind, Immediate, Module, OpaqueOperand, Operand

__all__ = ["from_json", "to_json"]

_KINDS: dict[str, type[AccessPattern | Immediate]] = {"physical_ap": AccessPattern, "imm_value": Immediate}
_MAX_DEPTH = 64
_KIND_OF: dict[type, str] = {cls: kind for kind, cls in _KINDS.items()}


def from_json(text: str | bytes) -> Module:
    """Reads a BIR module.

    Args:
        text: JSON; bytes are UTF-8.

    Returns:
        The program, which is not verified yet; keys that this package does not know are in the records' `extra`.

    Raises:
        BirFormatError: `text` is not JSON, repeats a key, or misses or mistypes a key of the format.
    """
    try:
        raw = json.loads(
            text, object_pairs_hook=_unique_keys, parse_float=_finite_float, parse_constant=_refuse_constant
        )
    except BirFormatError:
        raise
    except RecursionError as error:
        raise BirFormatError("not readable: the JSON is nested too deeply") from error
    except ValueError as error:
        raise BirFormatError(f"not JSON: {error}") from error
    _check_values(raw)
    return _read_record(Module, raw, "$")


def to_json(module: Module) -> str:
    """Writes a BIR module.

    Args:
        module: The program.

    Returns:
        Its canonical JSON: keys sorted, indent 2, one newline at the end; equal programs give equal text.
    """
    return json.dumps(_plain(module), indent=2, sort_keys=True, allow_nan=False) + "\n"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in pairs:
        if key in record:
            raise BirFormatError(f'not readable: the key "{key}" stands twice in one object')
        record[key] = value
    return record


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BirFormatError(f"not readable: the number {text} does not fit a float64")
    return value


def _refuse_constant(name: str) -> None:
    raise BirFormatError(f"not JSON: {name} is not a JSON number")


def _check_values(raw: Any) -> None:
    """Refuses what could not be written again: nesting too deep for recursion, and strings that UTF-8 has no form for.

    JSON can spell half of a surrogate pair, which is no character.
    """
    level = [raw]
    for _ in range(_MAX_DEPTH):
        for value in level:
            if isinstance(value, str):
                _check_text(value)
            elif isinstance(value, dict):
                for key in value:
                    _check_text(key)
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise BirFormatError(f"not readable: the JSON is nested deeper than {_MAX_DEPTH} levels")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BirFormatError(f"not readable: {_shown(text)} has half of a surrogate pair, no character") from None


@cache
def _fields(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """JSON key to dataclass field and its type, `extra` left out."""
    hints = typing.get_type_hints(cls)
    return {
        field.metadata.get("json", field.name): (field, hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name != "extra"
    }


def _read_record(cls: type, raw: Any, path: str) -> Any:
    if not isinstance(raw, dict):
        raise BirFormatError(f"{path}: wanted an object, found {_shown(raw)}")
    values: dict[str, Any] = {}
    for key, (field, hint) in _fields(cls).items():
        if key in raw:
            values[field.name] = _read_value(hint, raw[key], f"{path}.{key}")
        elif _is_optional(hint):
            values[field.name] = None
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise BirFormatError(f'{path}: the key "{key}" is missing')
    extra = {key: value for key, value in raw.items() if key not in _fields(cls)}
    if cls in _KIND_OF:
        extra.pop("kind")
    return cls(**values, extra=extra)


def _read_value(hint: Any, raw: Any, path: str) -> Any:
    if hint == Operand:
        return _read_operand(raw, path)
    if hint is Dtype:
        return _read_dtype(raw, path)
    if _is_optional(hint):
        return _read_value(hint.__args__[0], raw, path)
    if dataclasses.is_dataclass(hint):
        return _read_record(typing.cast(type, hint), raw, path)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and arguments[-1] is ... and _holds_record(arguments[0]):
        if not isinstance(raw, list):
            raise BirFormatError(f"{path}: wanted an array, found {_shown(raw)}")
        return tuple(_read_value(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(raw))
    try:
        return msgspec.convert(raw, hint)
    except msgspec.ValidationError as error:
        message, _, inner = str(error).partition(" - at `$")
        raise BirFormatError(f"{path}{inner.rstrip('`')}: {message[0].lower()}{message[1:]}") from error


def _is_optional(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and type(None) in hint.__args__


def _holds_record(hint: Any) -> bool:
    return hint == Operand or dataclasses.is_dataclass(hint)


def _read_operand(raw: Any, path: str) -> Operand:
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise BirFormatError(f'{path}: wanted an object with a string "kind", found {_shown(raw)}')
    if kind in _KINDS:
        return typing.cast(Operand, _read_record(_KINDS[kind], raw, path))
    return OpaqueOperand(kind, {key: value for key, value in raw.items() if key != "kind"})


def _read_dtype(raw: Any, path: str) -> Dtype:
    try:
        return dtype_named(raw)
    except (KeyError, TypeError) as error:
        names = ", ".join(dtype.name for dtype in DTYPES)
        raise BirFormatError(f"{path}: {_shown(raw)} is not a dtype; known are {names}") from error


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _plain(value: Any) -> Any:
    """`value` as JSON's own types."""
    if isinstance(value, Dtype):
        return value.name
    if isinstance(value, EdgeKind):
        return int(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        record = {
            key: _plain(getattr(value, field.name))
            for key, (field, _) in _fields(type(value)).items()
            if getattr(value, field.name) is not None
        }
        kind = _KIND_OF.get(type(value))
        return {**value.extra, **record, **({"kind": kind} if kind else {})}  # type: ignore[attr-defined]
    return value

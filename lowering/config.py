"""Configuration of MX calls: JSON text in, typed values and named problems out, canonical bytes back.

msgspec checks every value against a typed schema. It reads one document as one value, though: it keeps the last of two
equal keys silently and cannot say which key of a malformed document is at fault. So the top level of the object is cut
into its members first (no recursion, so nesting depth costs nothing), and each member's value goes to msgspec.
"""

import dataclasses
import functools
import json
import math
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec

from lowering.diagnostics import shorten

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_CACHED_LENGTH = 4096
"""Modules repeat the same few short configurations thousands of times; long ones are not worth the memory."""

S = TypeVar("S", bound=msgspec.Struct)


class QuantizeMxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of `QuantizeMX`. `dtype` has no default: empty means absent.

    `mx_scale_rule` repeats the frontend attribute of that name where a call is still to be partitioned: a partitioner
    is shown the configuration and no attributes.
    """

    block_size: Int64 = 32
    dim: Int64 = 0
    dtype: str = ""
    scale_method: str = "EMAX"
    mx_scale_rule: str = ""


class ScaledDotConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of `__op$block_scaled_dot`, found under the key `scaled_dot_backend_config`."""

    lhs_batch_dimensions: tuple[Int64, ...] = ()
    rhs_batch_dimensions: tuple[Int64, ...] = ()
    lhs_contracting_dimensions: tuple[Int64, ...] = ()
    rhs_contracting_dimensions: tuple[Int64, ...] = ()
    element_dtype: str = ""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A value that is not what the schema wants; `key` is empty when the document as a whole is at fault."""

    key: str
    cause: str


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The outcome of reading one configuration.

    Attributes:
        values: Values of the keys that are well formed; a key that is absent or malformed is absent here.
        problems: What is malformed.
        unknown: Keys that the schema does not have.
        complete: False when the document broke off, so that nothing can be said about any key.
    """

    values: dict[str, object]
    problems: tuple[Problem, ...] = ()
    unknown: tuple[str, ...] = ()
    complete: bool = True

    def readable(self, key: str) -> bool:
        """Whether the value of a key, or its absence, is known."""
        return self.complete and all(p.key != key for p in self.problems)

    def build(self, schema: type[S]) -> S:
        """Returns a config of the well-formed values, defaults elsewhere."""
        return msgspec.convert(self.values, schema)


def canonical_json(config: msgspec.Struct) -> str:
    """Spells the configuration of a call, for its `backend_config`.

    Args:
        config: A `QuantizeMxConfig` or `ScaledDotConfig`.

    Returns:
        JSON in canonical bytes: keys sorted, no blanks; keys whose value is "" or () are left out.
    """
    values = {k: v for k, v in msgspec.to_builtins(config).items() if v not in ("", ())}
    return msgspec.json.encode(values, order="sorted").decode()


def parse_json(text: str, schema: type[msgspec.Struct]) -> Parsed:
    """Reads `text` as an object of `schema`. Never raises: what is wrong is in the result."""
    return _parse_cached(text, schema) if len(text) <= _CACHED_LENGTH else _parse(text, schema)


@functools.lru_cache(maxsize=1024)
def _parse_cached(text: str, schema: type[msgspec.Struct]) -> Parsed:
    return _parse(text, schema)


def _parse(text: str, schema: type[msgspec.Struct]) -> Parsed:
    try:
        members = _members(text)
    except _MalformedError as e:
        return Parsed(values={}, problems=(Problem(key=e.key, cause=e.cause),), complete=False)
    types = {f.name: f.type for f in msgspec.structs.fields(schema)}
    values: dict[str, object] = {}
    problems: list[Problem] = []
    unknown: list[str] = []
    seen: set[str] = set()
    for key, raw in members:
        if key in seen:
            problems.append(Problem(key=key, cause="appears more than once"))
            values.pop(key, None)
            continue
        seen.add(key)
        if key not in types:
            unknown.append(key)
            problems += _problems_of_unknown(key, raw)
            continue
        try:
            values[key] = msgspec.json.decode(raw, type=types[key])
        except (msgspec.DecodeError, RecursionError) as e:
            problems.append(Problem(key=key, cause=_why(e, raw)))
    return Parsed(values=values, problems=tuple(problems), unknown=tuple(unknown))


def parse_nested_json(text: str, key: str, schema: type[msgspec.Struct]) -> Parsed:
    """Reads the object of `schema` that stands under `key` of the object `text`."""
    try:
        members = _members(text)
    except _MalformedError as e:
        return Parsed(values={}, problems=(Problem(key=e.key, cause=e.cause),), complete=False)
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for k, raw in members:
        if k in found:
            problems.append(Problem(key=k, cause="appears more than once"))
            continue
        found[k] = raw
        if k != key:
            problems += _problems_of_unknown(k, raw)
    inner = parse_json(found[key], schema) if key in found else Parsed(values={})
    if any(p.key == key for p in problems):
        inner = Parsed(values={}, complete=False)
    # What is wrong with the nested document as a whole is wrong with the value of its key.
    problems += [p if p.key else dataclasses.replace(p, key=key) for p in inner.problems]
    unknown = tuple(k for k in found if k != key) + inner.unknown
    return dataclasses.replace(inner, problems=tuple(problems), unknown=unknown)


def _problems_of_unknown(key: str, raw: str) -> list[Problem]:
    """Says what is wrong with the value of a key that the schema does not have: it must be JSON all the same."""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)  # the grammar, which Python's own reader takes less strictly
        json.loads(raw, object_pairs_hook=_distinct, parse_float=_finite, parse_int=_finite)
    except (ValueError, RecursionError) as e:
        return [Problem(key=key, cause=_why(e, raw))]
    return []


def _distinct(members: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in members:
        if key in seen:
            raise ValueError(f"the key '{shorten(key)}' appears more than once")
        seen.add(key)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


class _MalformedError(Exception):
    def __init__(self, cause: str, key: str = ""):
        self.cause, self.key = cause, key
        super().__init__(cause)


_BLANKS = " \t\n\r"
_OPEN = {"{": "}", "[": "]"}
_decode_string = json.JSONDecoder().raw_decode


def _members(text: str) -> list[tuple[str, str]]:
    """Cuts a JSON object into (key, text of the value), in order, duplicates kept."""
    at = _skip_blanks(text, 0)
    if text[at : at + 1] != "{":
        raise _MalformedError(f"is not a JSON object: {shorten(text) or 'nothing'}")
    members: list[tuple[str, str]] = []
    at = _skip_blanks(text, at + 1)
    while text[at : at + 1] != "}" or members:
        key, at = _key(text, at)
        start = _skip_blanks(text, at)
        at = _end_of_value(text, start, key)
        members.append((key, text[start:at].rstrip(_BLANKS)))
        if text[at] == "}":
            break
        at = _skip_blanks(text, at + 1)
    rest = text[at + 1 :].strip(_BLANKS)
    if rest:
        raise _MalformedError(f"goes on after its end: {shorten(rest)}")
    return members


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise _MalformedError(f"is not valid JSON: a quoted key is missing at character {at}")
    try:
        key, at = _decode_string(text, at)
    except json.JSONDecodeError as e:
        raise _MalformedError(f"is not valid JSON: {e.msg} at character {e.pos}") from None
    at = _skip_blanks(text, at)
    if text[at : at + 1] != ":":
        raise _MalformedError("has no colon after it", key)
    return key, at + 1


def _end_of_value(text: str, at: int, key: str) -> int:
    """Returns the position of the comma or brace that ends the value starting at `at`."""
    expected: list[str] = []
    while at < len(text):
        char = text[at]
        if char == '"':
            at = _end_of_string(text, at, key)
            continue
        if not expected and char in ",}":
            return at
        if char in _OPEN:
            expected.append(_OPEN[char])
        elif char in "]}" and (not expected or expected.pop() != char):
            raise _MalformedError(f"has a bracket that closes nothing at character {at}", key)
        at += 1
    raise _MalformedError("has a value that never ends", key)


def _end_of_string(text: str, at: int, key: str) -> int:
    start = at + 1
    while True:
        end = text.find('"', start)
        if end < 0:
            raise _MalformedError("has a string that never ends", key)
        backslashes = 0
        while text[end - 1 - backslashes] == "\\":
            backslashes += 1
        if backslashes % 2 == 0:
            return end + 1
        start = end + 1


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _why(cause: Exception, raw: str) -> str:
    if isinstance(cause, RecursionError):
        return f"is nested too deeply: {shorten(raw)}"
    reason = str(cause).split(" - at ")[0].split(" (byte")[0].replace("JSON is malformed", "not valid JSON")
    return f"is {shorten(raw) or 'nothing'}: {reason[0].lower() + reason[1:]}"

"""Checks the values of options and arguments of a few words: a wrong one is an error here, not a surprise later."""

import dataclasses
import enum
import functools
import operator
from typing import Any, TypeVar, get_type_hints

from lowering.diagnostics import Diagnostic, LoweringError

E = TypeVar("E", bound=enum.StrEnum)

BAD_VALUE = "MX017"
"""Code of an option or argument that has a value it cannot have."""


class OptionError(LoweringError, ValueError):
    """An option or argument has a value that it cannot have: a ValueError that carries a diagnostic as well.

    The command line makes passes from its flags, and prints what is wrong with them like everything else.
    """


def choice(kind: type[E], name: str, value: object) -> E:
    """Returns the member that a value is or spells.

    Args:
        kind: The words there are.
        name: Name of the argument, for the message.
        value: A member, or its text.

    Raises:
        OptionError: `value` is neither.
    """
    if isinstance(value, str) and value in list(kind):
        return kind(value)
    raise _bad(name, value, f"one of {', '.join(map(repr, map(str, kind)))}")


def check_options(options: Any) -> None:
    """Checks the fields of a frozen dataclass by their types, for its `__post_init__`; words become enum members.

    A field of type int may have its first and last value under "range" in its metadata.

    Raises:
        OptionError: A field has a value of another type, or one that it cannot have.
    """
    cls: Any = type(options)
    for name, kind, limits in _fields(cls):
        value = getattr(options, name)
        if issubclass(kind, enum.StrEnum):
            object.__setattr__(options, name, choice(kind, name, value))
        elif kind is int:
            object.__setattr__(options, name, _whole(name, value, *limits))
        elif not isinstance(value, bool):
            raise _bad(name, value, "True or False")


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, type, tuple[int, int]], ...]:
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)
    return tuple((f.name, hints[f.name], f.metadata.get("range", (-(2**63), 2**63 - 1))) for f in fields)


def _whole(name: str, value: Any, first: int, last: int) -> int:
    wanted = f"a whole number from {first} to {last}"
    try:
        number = operator.index(value)
    except TypeError:
        raise _bad(name, value, wanted) from None
    if isinstance(value, bool) or not first <= number <= last:
        raise _bad(name, value, wanted)
    return number


def _bad(name: str, value: object, wanted: str) -> OptionError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return OptionError([Diagnostic(code=BAD_VALUE, cause=f"{name} is {shown}", resolution=f"give {wanted}")])

"""Validation of integers, for modules that `_check` itself imports as well."""

import operator
from typing import Any


def check_integer(name: str, value: Any, choices: tuple[int, ...], why: str = "") -> int:
    """`value` as an int, if it is one of `choices`.

    Raises:
        TypeError: it is no integer known now: a float, an array, or traced.
        ValueError: it is another one.
    """
    wanted = f"{' or '.join(map(str, choices)) if len(choices) < 3 else f'one of {choices}'}{why}"
    try:
        index = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: got {value!r}, want {wanted}") from None
    if index not in choices:
        raise ValueError(f"{name}: got {index}, want {wanted}")
    return index

"""Programs with random damage: every tool either works or raises a `BirError`, and never anything else."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_fixtures.bir.generate import CALLS, DIRECTORY
from lowering.bir import BirError, encode_module, from_json, simulate, to_json, verify
from lowering.bir.adversarial import adversarial_bits
from lowering.bir.draw import draw_function

NAMES = ("k36", "batch_axis_minus_2")
PROGRAMS = {name: json.loads((DIRECTORY / f"{name}.json").read_text()) for name in NAMES}
JUNK: list[Any] = [
    *(None, True, 0, -1, 1, 2, 3, 31, 32, 33, 127, 128, 129, 2**15, 2**16, 2**31, 2**40, 2**63, 2**64, 1.5),
    *("", "x", "SB", "DRAM", "PSUM", "tile.src0", "uint8", "float32", "float8_e4m3fn_x4", "int64"),
    *("Load", "Save", "Memset", "QuantizeMx", "MatmultMx", "ExternalOutput", "Internal"),
    *([], [[1, 1]], [[0, 2]], [[8, 4], [0, 2**40]], {}, {"kind": "imm_value", "dtype": "uint8", "value": 3}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path into a JSON value but the root's."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


PLACES = {name: list(places(program)) for name, program in PROGRAMS.items()}


def damaged(name: str, draw: st.DataObject) -> str:
    """A program with a value removed or replaced, mostly by one of its own type."""
    program = copy.deepcopy(PROGRAMS[name])
    path = draw.draw(st.sampled_from(PLACES[name]))
    holder = program
    for key in path[:-1]:
        holder = holder[key]
    same = [value for value in JUNK if type(value) is type(holder[path[-1]])]
    if draw.draw(st.integers(0, 9)) == 0:
        del holder[path[-1]]
    else:
        holder[path[-1]] = draw.draw(st.sampled_from(same or JUNK))
    return json.dumps(program)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_damage_is_accepted_or_named(name: str, draw: st.DataObject) -> None:
    call, _ = CALLS[name]
    try:
        module = from_json(damaged(name, draw))
        assert from_json(to_json(module)) == module
        assert all(str(violation).startswith("[") for violation in verify(module))
        for function in module.functions:
            encode_module(module, function)
            simulate(module, {"x": adversarial_bits(call.shape, call.element_type)}, function=function.name)
    except BirError as error:
        assert str(error)


@pytest.mark.parametrize("name", NAMES)
def test_undamaged_programs_pass_through_every_tool(name: str) -> None:
    call, _ = CALLS[name]
    module = from_json(json.dumps(PROGRAMS[name]))
    assert verify(module) == []
    (function,) = module.functions
    assert encode_module(module, function).words
    assert draw_function(function, ".svg")
    assert simulate(module, {"x": adversarial_bits(call.shape, call.element_type)})


@given(st.text() | st.binary())
def test_any_text(text: str | bytes) -> None:
    with pytest.raises(BirError):
        from_json(text)

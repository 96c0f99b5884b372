"""BIR JSON: canonical text, nothing lost, and errors that name the JSON path."""

import dataclasses
import json
from typing import Any

import pytest

from lowering.bir import BirFormatError, LegalizedCall, from_json, lower_calls, to_json
from lowering.bir.program import Debug, EdgeKind, OpaqueOperand

CALL = LegalizedCall((3, 36), "bfloat16", "float8_e4m3fn", source=("model.py", 12))
MODULE = lower_calls([CALL])
TEXT = to_json(MODULE)


def edited(path: list[str | int], value: Any) -> str:
    """The module's text with the value at `path` replaced."""
    raw = json.loads(TEXT)
    holder = raw
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = value
    return json.dumps(raw)


def without(path: list[str | int]) -> str:
    raw = json.loads(TEXT)
    holder = raw
    for part in path[:-1]:
        holder = holder[part]
    del holder[path[-1]]
    return json.dumps(raw)


def test_round_trip() -> None:
    assert from_json(TEXT) == MODULE
    assert to_json(from_json(TEXT)) == TEXT


def test_the_text_is_canonical() -> None:
    raw = json.loads(TEXT)
    assert json.dumps(raw, indent=2, sort_keys=True) + "\n" == TEXT
    shuffled = json.dumps(dict(reversed(raw.items())), separators=(",", ":"))
    assert to_json(from_json(shuffled)) == TEXT


def test_root_and_function_keys() -> None:
    raw = json.loads(TEXT)
    assert {key: raw[key] for key in ("arch", "attributes", "version")} == {
        "arch": "core_v4",
        "attributes": {"neuron_core_id": 0},
        "version": 2,
    }
    function = raw["functions"][0]
    assert (function["name"], function["attributes"]) == ("sg0000", {"need_unroll": True})
    assert [block["name"] for block in function["blocks"]] == ["Block1"]


def test_allocation_and_location_keys() -> None:
    """The source buffer: one padded quadrant, 3 columns of 4 bf16 elements, 24 bytes a partition."""
    allocation = json.loads(TEXT)["functions"][0]["allocations"][3]
    assert allocation == {
        "Skind": "memory_location_set",
        "addr_space": "Local",
        "dtype": "bfloat16",
        "kind": "Internal",
        "memorylocations": [
            {
                "Skind": "memory_location",
                "addr": 0,
                "allocated": True,
                "bank": 0,
                "base": 0,
                "dims": [32, 24],
                "name": "tile.src0",
                "pinned": False,
                "tensor_id": 3,
                "type": "SB",
            }
        ],
        "name": "tile.src0_set",
        "partition_dim": 0,
        "tensorId2MemLocSize": 1,
        "tensor_shape": [32, 12],
    }


def test_instruction_keys() -> None:
    """Flow 4 on both writers of the source; the scale operand spans 4 partitions for 32."""
    (quantize,) = [
        item for item in json.loads(TEXT)["functions"][0]["blocks"][0]["instructions"] if item["opcode"] == "QuantizeMx"
    ]
    assert quantize == {
        "debug": {"filename": "model.py", "lineno": 12},
        "dependencies": [["Memset-0", 4], ["Load-0", 4]],
        "engine": "DVE",
        "engine_id": 5,
        "ins": [
            {
                "ap": [[12, 32], [1, 12]],
                "dtype": "bfloat16",
                "kind": "physical_ap",
                "memref": "tile.src0",
                "memsetref": "tile.src0_set",
                "offset": 0,
            }
        ],
        "name": "QuantizeMX-0",
        "opcode": "QuantizeMx",
        "origin": "Internal",
        "outs": [
            {
                "ap": [[3, 32], [1, 3]],
                "dtype": "float8_e4m3fn_x4",
                "kind": "physical_ap",
                "memref": "tile.data0",
                "memsetref": "tile.data0_set",
                "offset": 0,
            },
            {
                "ap": [[3, 4], [1, 3]],
                "dtype": "uint8",
                "kind": "physical_ap",
                "memref": "tile.scale0",
                "memsetref": "tile.scale0_set",
                "offset": 0,
            },
        ],
    }


@pytest.mark.parametrize(
    "path",
    [
        ["note"],
        ["functions", 0, "note"],
        ["functions", 0, "allocations", 0, "note"],
        ["functions", 0, "allocations", 0, "memorylocations", 0, "note"],
        ["functions", 0, "blocks", 0, "note"],
        ["functions", 0, "blocks", 0, "instructions", 0, "loopnest"],
        ["functions", 0, "blocks", 0, "instructions", 1, "ins", 0, "note"],
        ["functions", 0, "blocks", 0, "instructions", 0, "ins", 0, "note"],
        ["functions", 0, "attributes", "note"],
        ["functions", 0, "blocks", 0, "instructions", 0, "debug", "note"],
    ],
)
@pytest.mark.parametrize("value", [None, [1, {"b": 2.5, "a": "µ"}], 2**70])
def test_unknown_keys_are_kept(path: list[str | int], value: Any) -> None:
    text = edited(path, value)
    assert json.loads(to_json(from_json(text))) == json.loads(text)


def test_unknown_operand_kinds_are_kept() -> None:
    operand = {"kind": "register_ap", "regref": "r1"}
    text = edited(["functions", 0, "blocks", 0, "instructions", 1, "ins", 0], operand)
    module = from_json(text)
    read = list(module.functions[0].instructions())[1].ins[0]
    assert read == OpaqueOperand("register_ap", {"regref": "r1"})
    assert json.loads(to_json(module)) == json.loads(text)


def test_values_become_typed() -> None:
    quantize = next(item for item in from_json(TEXT).functions[0].instructions() if item.opcode == "QuantizeMx")
    assert quantize.dependencies == (("Memset-0", EdgeKind.FLOW), ("Load-0", EdgeKind.FLOW))
    assert quantize.debug == Debug("model.py", 12)


def test_keys_that_may_be_absent() -> None:
    """A program without engine numbers, edges and source lines, as other writers make them."""
    raw = json.loads(TEXT)
    for instruction in raw["functions"][0]["blocks"][0]["instructions"]:
        for key in ("engine_id", "dependencies", "debug"):
            del instruction[key]
    module = from_json(json.dumps(raw))
    first = next(module.functions[0].instructions())
    assert (first.engine_id, first.dependencies, first.debug) == (None, (), None)
    assert "engine_id" not in json.loads(to_json(module))["functions"][0]["blocks"][0]["instructions"][0]


FIRST = ["functions", 0, "blocks", 0, "instructions", 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff\xfe{", "not JSON: 'utf-16-le' codec can't decode byte 0x7b in position 2: truncated data"),
        ("[]", "$: wanted an object, found []"),
        ('{"version": 2, "version": 3}', 'not readable: the key "version" stands twice in one object'),
        ('{"version": NaN}', "not JSON: NaN is not a JSON number"),
        ('{"version": 1e400}', "not readable: the number 1e400 does not fit a float64"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "not readable: the JSON is nested deeper than 64 levels"),
        ("[" * 100_000, "not readable: the JSON is nested too deeply"),
        (without(["functions"]), '$: the key "functions" is missing'),
        (without([*FIRST, "engine"]), '$.functions[0].blocks[0].instructions[0]: the key "engine" is missing'),
        (edited(["version"], "2"), "$.version: expected `int`, got `str`"),
        (edited(["version"], 2.0), "$.version: expected `int`, got `float`"),
        (edited(["version"], True), "$.version: expected `int`, got `bool`"),
        (edited(["functions"], {}), "$.functions: wanted an array, found {}"),
        (edited(["functions", 0], 7), "$.functions[0]: wanted an object, found 7"),
        (
            edited([*FIRST, "outs", 0, "ap"], [[1, 2], [1, "3"]]),
            "$.functions[0].blocks[0].instructions[0].outs[0].ap[1][1]: expected `int`, got `str`",
        ),
        (
            edited([*FIRST, "outs", 0, "ap"], [[1, 2, 3]]),
            "$.functions[0].blocks[0].instructions[0].outs[0].ap[0]: expected `array` of length 2, got 3",
        ),
        (
            edited([*FIRST, "dependencies"], [["Load-0", 7]]),
            "$.functions[0].blocks[0].instructions[0].dependencies[0][1]: invalid enum value 7",
        ),
        (
            edited([*FIRST, "outs", 0], {"ap": []}),
            '$.functions[0].blocks[0].instructions[0].outs[0]: wanted an object with a string "kind", found {"ap": []}',
        ),
        (
            edited([*FIRST, "debug"], None),
            "$.functions[0].blocks[0].instructions[0].debug: wanted an object, found null",
        ),
    ],
)
def test_errors_name_the_path(text: str | bytes, message: str) -> None:
    with pytest.raises(BirFormatError) as caught:
        from_json(text)
    assert str(caught.value) == message


def test_an_unknown_dtype_is_named_with_the_known_ones() -> None:
    with pytest.raises(BirFormatError) as caught:
        from_json(edited([*FIRST, "ins", 0, "dtype"], "bf16"))
    assert str(caught.value).startswith(
        '$.functions[0].blocks[0].instructions[0].ins[0].dtype: "bf16" is not a dtype; known are uint8, int8, '
    )


def test_a_number_of_many_digits_is_refused_or_kept() -> None:
    with pytest.raises(BirFormatError, match="not JSON"):
        from_json(edited(["note"], 0).replace('"note": 0', '"note": ' + "9" * 5000))


def test_extra_never_hides_a_known_key() -> None:
    module = dataclasses.replace(MODULE, extra={"arch": "other"})
    assert json.loads(to_json(module))["arch"] == "core_v4"

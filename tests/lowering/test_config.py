"""Configurations: typed values, every problem named with its key, canonical bytes back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.config import (
    Parsed,
    Problem,
    QuantizeMxConfig,
    ScaledDotConfig,
    canonical_json,
    parse_json,
    parse_nested_json,
)


def problems(text: str) -> list[tuple[str, str]]:
    return [(p.key, p.cause) for p in parse_json(text, QuantizeMxConfig).problems]


def test_defaults() -> None:
    assert parse_json("{}", QuantizeMxConfig).build(QuantizeMxConfig) == QuantizeMxConfig(
        block_size=32, dim=0, dtype="", scale_method="EMAX"
    )


def test_blanks_order_and_unknown_keys_are_accepted() -> None:
    parsed = parse_json(' {"x" : {"a":[1,"}"]} , "dim"\n:\t-1 , "dtype":"float8_e5m2"} ', QuantizeMxConfig)
    assert parsed == Parsed(values={"dim": -1, "dtype": "float8_e5m2"}, unknown=("x",))


def test_canonical_bytes() -> None:
    config = QuantizeMxConfig(dim=1, dtype="float8_e4m3fn")
    assert canonical_json(config) == '{"block_size":32,"dim":1,"dtype":"float8_e4m3fn","scale_method":"EMAX"}'
    assert canonical_json(ScaledDotConfig(lhs_batch_dimensions=(0,))) == '{"lhs_batch_dimensions":[0]}'


@given(
    dim=st.integers(-(2**63), 2**63 - 1), block_size=st.integers(-9, 99), dtype=st.text(min_size=1), method=st.text()
)
def test_what_json_writes_is_read_back(dim: int, block_size: int, dtype: str, method: str) -> None:
    given_values = {"dim": dim, "block_size": block_size, "dtype": dtype, "scale_method": method}
    parsed = parse_json(json.dumps(given_values), QuantizeMxConfig)
    assert parsed == Parsed(values=given_values)


@given(st.text(alphabet='{}[]":,\\ 0123456789.eE+-truefalsnd'))
def test_any_text_is_parsed_or_named(text: str) -> None:
    parsed = parse_json(text, QuantizeMxConfig)
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = None
    if isinstance(loaded, dict) and parsed.problems:
        assert all(problem.key for problem in parsed.problems)
    elif not isinstance(loaded, dict):
        assert parsed.problems


@pytest.mark.parametrize(
    ("text", "key", "cause"),
    [
        ("", "", "is not a JSON object: nothing"),
        ("[1]", "", "is not a JSON object: [1]"),
        ("null", "", "is not a JSON object: null"),
        ("{", "", "is not valid JSON: a quoted key is missing at character 1"),
        ("{'dim': 1}", "", "is not valid JSON: a quoted key is missing at character 1"),
        ('{"dim": 1,}', "", "is not valid JSON: a quoted key is missing at character 10"),
        ('{"dim": 1} 2', "", "goes on after its end: 2"),
        ('{"dim"}', "dim", "has no colon after it"),
        ('{"dim": }', "dim", "is nothing: input data was truncated"),
        ('{"dim": 1', "dim", "has a value that never ends"),
        ('{"dim": "1', "dim", "has a string that never ends"),
        ('{"dim": 1]', "dim", "has a bracket that closes nothing at character 9"),
        ('{"dim": "1"}', "dim", 'is "1": expected `int`, got `str`'),
        ('{"dim": 1.0}', "dim", "is 1.0: expected `int`, got `float`"),
        ('{"dim": 1.5}', "dim", "is 1.5: expected `int`, got `float`"),
        ('{"dim": true}', "dim", "is true: expected `int`, got `bool`"),
        ('{"dim": null}', "dim", "is null: expected `int`, got `null`"),
        ('{"dim": NaN}', "dim", "is NaN: not valid JSON: invalid character"),
        ('{"dim": 1e400}', "dim", "is 1e400: number out of range"),
        ('{"dim": 9223372036854775808}', "dim", "is 9223372036854775808: expected `int` <= 9223372036854775807"),
        ('{"dim": 1, "dim": 1}', "dim", "appears more than once"),
        ('{"other": 1e400}', "other", "is 1e400: number out of range"),
        ('{"other": [-1e400]}', "other", "is [-1e400]: number out of range"),
        ('{"other": NaN}', "other", "is NaN: not valid JSON: invalid character"),
        ('{"other": {"a": 1, "a": 2}}', "other", """is {"a": 1, "a": 2}: the key 'a' appears more than once"""),
        ('{"other": 1, "other": 1}', "other", "appears more than once"),
        ('{"dtype": 5}', "dtype", "is 5: expected `str`, got `int`"),
        ('{"dtype": null}', "dtype", "is null: expected `str`, got `null`"),
        ('{"scale_method": ["EMAX"]}', "scale_method", 'is ["EMAX"]: expected `str`, got `array`'),
    ],
)
def test_problem_names_its_key(text: str, key: str, cause: str) -> None:
    assert problems(text) == [(key, cause)]


def test_all_problems_are_reported() -> None:
    assert [key for key, _ in problems('{"dim": "1", "block_size": 1.5, "dtype": 2}')] == ["dim", "block_size", "dtype"]


def test_size_and_depth_are_harmless() -> None:
    deep = "[" * 10_000 + "]" * 10_000
    ((key, cause),) = problems(f'{{"dim": {deep}}}')
    assert (key, cause.endswith("expected `int`, got `array`")) == ("dim", True)
    ((key, cause),) = problems(f'{{"other": {deep}}}')
    assert (key, cause.startswith("is nested too deeply")) == ("other", True)
    long = "x" * 10_000_000
    assert parse_json(f'{{"dtype": "{long}"}}', QuantizeMxConfig).values == {"dtype": long}
    assert problems(f'{{"dim": {"9" * 5000}}}')[0][0] == "dim"
    assert len(problems(f'{{"dim": "{long}"}}')[0][1]) < 200


def test_nested_config() -> None:
    key = "scaled_dot_backend_config"
    text = f'{{"{key}": {{"lhs_batch_dimensions": [0, 1], "rhs_batch_dimensions": ["0"]}}, "other": 1}}'
    parsed = parse_nested_json(text, key, ScaledDotConfig)
    assert parsed.values == {"lhs_batch_dimensions": (0, 1)}
    assert parsed.problems == (Problem(key="rhs_batch_dimensions", cause='is ["0"]: expected `int`, got `str`'),)
    assert parsed.unknown == ("other",)
    assert parse_nested_json("{}", key, ScaledDotConfig) == Parsed(values={})
    assert parse_nested_json(f'{{"{key}": 1}}', key, ScaledDotConfig).problems[0].cause == "is not a JSON object: 1"


@pytest.mark.parametrize(
    ("outer", "key", "cause"),
    [
        ('"foo": bar', "foo", "is bar: not valid JSON: invalid character"),
        ('"foo":', "foo", "is nothing: input data was truncated"),
        ('"foo": NaN', "foo", "is NaN: not valid JSON: invalid character"),
        ('"foo": 1e400', "foo", "is 1e400: number out of range"),
        ('"foo": 1, "foo": 1', "foo", "appears more than once"),
        ('"foo": {"a": 1, "a": 2}', "foo", """is {"a": 1, "a": 2}: the key 'a' appears more than once"""),
        ('"foo": ' + "[" * 9999 + "]" * 9999, "foo", f"is nested too deeply: {'[' * 60}... (19998 characters)"),
        ('"nested": {}', "nested", "appears more than once"),
    ],
)
def test_problem_beside_a_nested_config_names_its_key(outer: str, key: str, cause: str) -> None:
    parsed = parse_nested_json(f'{{{outer}, "nested": {{"element_dtype": "x"}}}}', "nested", ScaledDotConfig)
    assert parsed.problems == (Problem(key=key, cause=cause),)
    assert parsed.values == ({} if key == "nested" else {"element_dtype": "x"})


@pytest.mark.parametrize("value", ["null", "[]", "{,}"])
def test_problem_of_a_nested_config_as_a_whole_names_its_key(value: str) -> None:
    ((problem),) = parse_nested_json(f'{{"nested": {value}}}', "nested", ScaledDotConfig).problems
    assert problem.key == "nested"

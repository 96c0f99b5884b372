"""Rules of `__op$block_scaled_dot` at their edges; each code alone is in the invalid fixtures."""

from typing import Any

import pytest

from lowering import read_module
from lowering.calls import SCALED_DOT_TARGET, match
from lowering.scaled_dot_rules import check_scaled_dot
from tests.lowering.test_legalize_scaled_matmul import BATCHED, config, dot


def codes(**values: Any) -> list[str]:
    module = read_module(dot(config(element_dtype="float8_e5m2", **values)))
    with module.context:
        (call,) = match(module, SCALED_DOT_TARGET)
        return [d.code for d in check_scaled_dot(call)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (BATCHED, []),
        ({}, []),
        ({**BATCHED, "lhs_contracting_dimensions": [2], "rhs_contracting_dimensions": [-1]}, []),
        # Batches of different number but equal product: the published rule counts dimensions first.
        ({"lhs_batch_dimensions": [0], "rhs_batch_dimensions": []}, ["NCC_EVRF048"]),
        ({"lhs_batch_dimensions": [0], "rhs_batch_dimensions": [1]}, ["NCC_EVRF048"]),
        # The last dimension is contracted when none is named.
        ({"lhs_batch_dimensions": [2], "rhs_batch_dimensions": [2]}, ["NCC_EVRF053"]),
        ({**BATCHED, "lhs_contracting_dimensions": [-3]}, ["NCC_EVRF050", "NCC_EVRF053"]),
        ({**BATCHED, "lhs_contracting_dimensions": [-4]}, ["NCC_EVRF055"]),
        ({**BATCHED, "lhs_contracting_dimensions": [3], "rhs_contracting_dimensions": [7]}, ["NCC_EVRF055"]),
        ({"lhs_batch_dimensions": [-1], "rhs_batch_dimensions": [5]}, ["NCC_EVRF054"]),
        ({"lhs_batch_dimensions": "0", "rhs_batch_dimensions": [0]}, ["NCC_EVRF049"]),
        ({**BATCHED, "lhs_contracting_dimensions": [1.5]}, ["NCC_EVRF049"]),
        # Two contracting dimensions: only the first of each is compared.
        ({"lhs_contracting_dimensions": [2, 1], "rhs_contracting_dimensions": [2, 0]}, []),
    ],
)
def test_rules(values: dict[str, Any], expected: list[str]) -> None:
    assert codes(**values) == expected


def test_element_dtype_is_warned_about() -> None:
    module = read_module(dot(config(**BATCHED, element_dtype="float8_e4m3")))
    with module.context:
        (call,) = match(module, SCALED_DOT_TARGET)
        (warning,) = check_scaled_dot(call)
    assert (warning.severity, warning.code) == ("warning", "MX013")
    assert warning.cause == "element_dtype is 'float8_e4m3'"

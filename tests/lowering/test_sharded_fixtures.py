"""Sharding annotations survive both passes, in StableHLO and in HLO, tuple shardings included."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jaxlib.mlir import ir

from hlo_fixtures import generate, sharded
from lowering import LegalizeQuantizeMx, LegalizeScaledMatmul, Module, read_module, run_passes, write_module
from lowering.module import Format
from tests.lowering.tools import FIXTURES

INPUTS = [path for path in sharded.files() if ".legalized" not in path.name]
RULES = ("sdy.sharding_rule", "xla.sdy.sharding_rule")


@pytest.mark.parametrize("path", sharded.files(), ids=lambda path: path.name)
def test_committed_file_is_what_jax_and_the_passes_make(path: Path) -> None:
    if generate.versions() == (FIXTURES / "VERSIONS").read_text().strip():
        assert path.read_bytes() == sharded.files()[path]
    assert b"sharding" in path.read_bytes()


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
@pytest.mark.parametrize("fmt", [Format.STABLEHLO_TEXT, Format.BYTECODE, Format.HLO_TEXT, Format.HLO_PROTO])
def test_annotations_are_the_same_after_the_passes(path: Path, fmt: Format) -> None:
    """Written and read back, so that what a conversion loses would show."""
    module = read_module(path.read_bytes(), path.name)
    module.mark_changed()  # else HLO would be written as it came, without the conversion that is compared with
    want = annotations(read_module(write_module(module, fmt)))
    run_passes(module, [LegalizeQuantizeMx(), LegalizeScaledMatmul()])
    assert annotations(read_module(write_module(module, fmt))) == want
    assert want.total() >= 2


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_no_legalized_call_has_a_rule(path: Path) -> None:
    module = read_module(path.read_bytes(), path.name)
    run_passes(module, [LegalizeQuantizeMx(), LegalizeScaledMatmul()])
    calls = [op for op in module.operations_named("stablehlo.custom_call") if _is_legalized(op)]
    assert len(calls) >= 1
    assert [name for op in calls for name, _ in _attributes(op) if name in RULES] == []


def annotations(module: Module) -> Counter[tuple[str, str]]:
    """Every sharding attribute of a module, of arguments, results and operations; the rules of MX calls aside."""
    found: Counter[tuple[str, str]] = Counter()

    def visit(op: Any) -> Any:
        found.update((name, value) for name, value in _attributes(op) if name not in RULES)
        return ir.WalkResult.ADVANCE

    module.mlir.operation.walk(visit)
    return found


def _attributes(op: Any) -> list[tuple[str, str]]:
    found = [(op.name, str(op))] if op.name == "sdy.mesh" else []
    for name in op.attributes:
        found += _flattened(name, op.attributes[name])
    return [(name, value) for name, value in found if "shard" in name or name.startswith("sdy.")]


def _flattened(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, ir.DictAttr):
        return [pair for item in value for pair in _flattened(item.name, item.attr)]
    if isinstance(value, ir.ArrayAttr):
        return [pair for item in value for pair in _flattened(name, item)]
    return [(name, str(value))]


def _is_legalized(op: Any) -> bool:
    return str(op.attributes["call_target_name"].value).startswith(("QuantizeMX_", "ScaledMatmul_"))

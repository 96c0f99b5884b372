"""The user's line is the innermost one outside the library, whatever the location is made of."""

import pytest

from lowering import SourceLocation, read_module
from lowering.locations import source_of


def source(location: str) -> SourceLocation | None:
    module = read_module(f"module {{ func.func @main() {{ return }} }} loc({location})", "module.mlir")
    return source_of(module.mlir.operation.location, module.name)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ('"model.py":3:7', "model.py:3"),
        ('"jit(f)/quantize_mx"("model.py":3:7)', "model.py:3"),
        ('callsite("f"("model.py":3:7) at "main"("main.py":9:1))', "model.py:3"),
        ('callsite("q"("/lib/jax_mx/_api.py":5:1) at callsite("f"("model.py":3:7) at "main.py":9:1))', "model.py:3"),
        ('fused["jit(f)/quantize_mx", "model.py":3:7]', "model.py:3"),
        ('fused["/lib/jax_mx/_api.py":5:1, "model.py":3:7]', "model.py:3"),
        ('"/lib/jax_mx/_api.py":5:1', "/lib/jax_mx/_api.py:5"),
        ('"model.py":3:7 to :9', "model.py:3"),
    ],
)
def test_source(location: str, expected: str) -> None:
    assert str(source(location)) == expected


def test_no_source() -> None:
    assert source("unknown") is None
    assert source('"only a name"') is None


def test_lines_of_the_text_itself_are_told_apart() -> None:
    module = read_module("func.func @main() {\n  return\n}", "module.mlir")
    found = source_of(module.mlir.body.operations[0].operation.location, module.name)
    assert found == SourceLocation(file="module.mlir", line=1, in_module=True)


def test_deep_call_stacks_are_followed() -> None:
    location = '"/lib/jax_mx/inner.py":1:1'
    for depth in range(300):
        location = f'callsite({location} at "/lib/jax_mx/f.py":{depth + 1}:1)'
    assert str(source(f'callsite({location} at "model.py":3:7)')) == "model.py:3"

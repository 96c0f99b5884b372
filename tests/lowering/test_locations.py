"""The user's line is the innermost one outside the library, whatever the location is made of."""

import pytest

from lowering import SourceLocation, read_module, write_module
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


def test_only_the_users_own_locations_are_written() -> None:
    text = """\
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32> loc("y"("user.py":2:1))) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %y : tensor<4xf32> loc("user.py":3:4)
  %1 = stablehlo.multiply %0, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""
    module = read_module(text, "module.mlir")
    written = write_module(module, "stablehlo").decode()
    assert '"-":' not in written
    assert '"user.py":3:4' in written and '"user.py":2:1' in written
    assert written.count("loc(unknown)") == 2  # the argument x, and all operations that name one alias
    hlo = write_module(module, "hlo").decode()
    assert hlo.count("source_file=") == 1 and 'source_file="user.py" source_line=3' in hlo
    assert b'"-":' not in write_module(read_module(write_module(module, "bytecode")), "stablehlo")
    # Messages still speak of the text's own lines.
    (multiply,) = module.operations_named("stablehlo.multiply")
    assert str(source_of(multiply.location, module.name)) == "module.mlir:3"


def test_text_that_only_looks_located_is_written_without_locations() -> None:
    text = 'func.func @main() {\n  stablehlo.custom_call @"loc("() : () -> ()\n  return\n}\n'
    written = write_module(read_module(text), "stablehlo").decode()
    assert "loc(unknown)" not in written and '"-"' not in written
    assert "metadata" not in write_module(read_module(text), "hlo").decode()


@pytest.mark.parametrize(
    ("location", "written"),
    [
        ('callsite("f"("-":3:7) at callsite("m":9:1 at "-":2:2))', 'callsite("f" at callsite("m":9:1 at unknown))'),
        ('callsite(callsite("a":1:1 at "b":2:2) at "-":2:2)', 'callsite(callsite("a":1:1 at "b":2:2) at unknown)'),
        ('fused<"meta">["-":3:7, "m.py":1:1]', 'fused<"meta">[unknown, "m.py":1:1]'),
        ('"x"("-":1:1)', '"x"'),
    ],
)
def test_made_up_parts_of_a_location_become_unknown(location: str, written: str) -> None:
    def rewritten(text: str) -> str:
        module = read_module(f"module {{ func.func @main() {{ return }} }} loc({text})")
        module = read_module(write_module(module, "stablehlo"))
        return str(module.mlir.operation.location)

    assert rewritten(location) == rewritten(written)
    assert '"-":' not in rewritten(location)

"""What XLA makes of the plain operations: how often the data goes through memory.

A reader of compiled HLO counts passes by fusions. One fusion reads x for the blocks' peaks, a small one turns them
into scales, which some releases of XLA make part of the first, and one reads x again and writes containers.
Dequantization is a single fusion.
"""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jax_mx
from tests import reference

X = jnp.ones((256, 256), jnp.bfloat16)


def entry_operations(f: Any, *args: Any) -> Counter[str]:
    """How many operations of each kind the entry computation of the compiled module has."""
    with jax_mx.config.use_implementation("xla"):
        (module,) = jax.jit(f).lower(*args).compile().runtime_executable().hlo_modules()
    text = module.to_string()
    instructions = [line.split(" = ")[1] for line in text[text.index("\nENTRY") :].splitlines() if " = " in line]
    opcodes = Counter(opcode_of(instruction) for instruction in instructions)
    for free in ("parameter", "tuple", "bitcast"):
        del opcodes[free]
    return opcodes


def opcode_of(instruction: str) -> str:
    """The opcode of `type opcode(operands)`; the type of a tuple is in parentheses."""
    after_type = instruction.split(") " if instruction.startswith("(") else " ", 1)[1]
    return after_type.split("(")[0]


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_quantize_reads_the_data_twice(fmt: str, axis: int) -> None:
    found = entry_operations(lambda x: jax_mx.quantize_mx(x, fmt, axis=axis), X)
    assert found in ({"fusion": 2}, {"fusion": 3})


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_dequantize_reads_the_data_once(fmt: str, axis: int, out_dtype: str) -> None:
    data, scale = jax_mx.quantize_mx(X, fmt, axis=axis)

    def dequantize(data: jax.Array, scale: jax.Array) -> jax.Array:
        return jax_mx.dequantize_mx(data, scale, fmt, axis=axis, out_dtype=out_dtype)

    assert entry_operations(dequantize, data, scale) == {"fusion": 1}


def test_other_operations_would_be_seen() -> None:
    assert entry_operations(lambda x: (jnp.sort(x), x.T.reshape(-1)), X).keys() & {"sort", "copy", "transpose"}
    assert entry_operations(lambda x: jnp.sort(x) + 1, X)["sort"] == 1

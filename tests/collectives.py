"""What a compiled program communicates: the collectives of its HLO, with their bytes."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import jax_mx
import lowering
from lowering import hlo_proto as p
from lowering.hlo_proto import Computation, Message

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
_BYTES = {"u8": 1, "u16": 2, "bf16": 2, "f16": 2, "u32": 4, "s32": 4, "f32": 4}
_ELEMENT_TYPES = {6: "u8", 7: "u16", 8: "u32", 4: "s32", 10: "f16", 11: "f32", 16: "bf16"}

Transfer = tuple[str, str, int]
"""Opcode, element type and bytes that one device holds afterwards."""


def transfers(compiled: Any) -> list[Transfer]:
    """Every collective of a compiled program, sorted."""
    found = []
    for module in compiled.runtime_executable().hlo_modules():
        proto = Message.parse(module.as_serialized_hlo_module_proto())
        for computation in proto.all_bytes(p.MODULE_COMPUTATIONS):
            for instruction in Computation.parse(computation).instructions:
                opcode = instruction.get_bytes(p.OPCODE).decode().removesuffix("-start")
                if opcode in COLLECTIVES:
                    found += [(opcode, *_size(shape)) for shape in _arrays(instruction.get_bytes(p.SHAPE))]
    return sorted(found)


def _arrays(shape: bytes) -> list[Message]:
    parsed = Message.parse(shape)
    if parsed.get_int(p.SHAPE_ELEMENT_TYPE) != p.TUPLE_ELEMENT_TYPE:
        return [parsed]
    return [array for element in parsed.all_bytes(p.SHAPE_TUPLE) for array in _arrays(element)]


def _size(shape: Message) -> tuple[str, int]:
    element_type = _ELEMENT_TYPES[shape.get_int(p.SHAPE_ELEMENT_TYPE)]
    return element_type, math.prod(shape.get_ints(p.SHAPE_DIMENSIONS)) * _BYTES[element_type]


@contextlib.contextmanager
def mode(name: str) -> Iterator[None]:
    """Lowers to plain operations, or to custom calls that XLA is given the operations of after partitioning."""
    if name == "inline":
        yield
        return
    with lowering.enable_in_xla() as hook, jax_mx.lowering_mode("custom_call"):
        yield
    assert hook.expanded >= 1, hook.failures
    assert hook.failures == []


def compile_and_run(function: Callable[..., Any], *arguments: jax.Array) -> tuple[Any, list[Transfer]]:
    """The results of a jitted function, and what it communicates."""
    compiled = jax.jit(function).lower(*arguments).compile()
    return compiled(*arguments), transfers(compiled)


def mesh(*sizes: int, explicit: bool = False) -> Mesh:
    """A mesh of the 8 devices: one axis `d`, or two, `a` and `b`."""
    names = ("d",) if len(sizes) == 1 else ("a", "b")
    kind = AxisType.Explicit if explicit else AxisType.Auto
    return jax.make_mesh(sizes, names, axis_types=(kind,) * len(sizes))


def put(x: Any, on: Mesh, *spec: Any) -> jax.Array:
    """An array sharded over a mesh."""
    return jax.device_put(x, NamedSharding(on, PartitionSpec(*spec)))


def random_bits(*shape: int, seed: int = 0) -> jax.Array:
    """bfloat16 of every kind: normal, subnormal, zero, Inf and NaN."""
    bits = np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16)
    return jax.lax.bitcast_convert_type(jax.numpy.asarray(bits), jax.numpy.bfloat16)

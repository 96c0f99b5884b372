"""How XLA's SPMD partitioner splits a `QuantizeMX` call: each shard quantizes the blocks that it holds.

XLA asks this module while it compiles a partitioned module. The call that it gets back is the same call on the shapes
of one shard. Where shards would split blocks, the quantized axis is gathered first, once.

It is asked only in the process that imported `jax_mx` and for platforms that jax compiles for itself: a compiler that
takes a module from a file and partitions it there gathers the whole operand, as it does for any call it does not know.
"""

import functools
import json
from typing import Any

import jax

from jax_mx import _primitive
from jax_mx._compat import bytecode, keep_whole, register_partitioner, tuple_sharding
from jax_mx._formats import BLOCK_SIZE, as_format
from jax_mx._lowering import SCALE_RULE_ATTRIBUTE
from jax_mx._lowering_mode import NEURON, QUANTIZE_TARGET, lowering_mode
from jax_mx._scale_rule import EMAX, SCALE_RULES


def _partition(
    operands: list[Any], shardings: list[Any], result: Any, result_sharding: Any, backend_config: bytes
) -> tuple[bytes, list[Any], Any]:
    """The module of one shard, and the shardings of the operand and of the results."""
    (x,) = operands
    config = read_config(QUANTIZE_TARGET, backend_config)
    axis = config["dim"]
    sharding = shardings[0]
    if sharding.is_replicated():  # a shard can be cut out of the whole
        sharding = result_sharding.tuple_elements()[0]
    sharding = _by_whole_blocks(sharding, x.dimensions(), axis)
    shard = x if sharding.is_manual() else sharding.tile(x)
    rule = config.get(SCALE_RULE_ATTRIBUTE, EMAX.name)
    module = _shard_module(shard.dimensions(), x.numpy_dtype(), config["dtype"], axis, rule)
    return module, [sharding], tuple_sharding(result, [sharding, sharding])


def read_config(target: str, backend_config: bytes) -> dict[str, Any]:
    """The configuration of a call as this package writes it.

    Raises:
        ValueError: it is another's, for example a typed FFI call's.
    """
    try:
        return json.loads(backend_config)
    except json.JSONDecodeError:
        raise ValueError(
            f"{target}: got backend_config {backend_config!r} in a module to be partitioned, want JSON, "
            f"as jax_mx writes it"
        ) from None


def _by_whole_blocks(sharding: Any, shape: tuple[int, ...], axis: int) -> Any:
    if sharding.is_replicated() or sharding.is_manual():
        return sharding
    pieces = sharding.tile_assignment_dimensions()[axis]
    return sharding if shape[axis] % (pieces * BLOCK_SIZE) == 0 or pieces == 1 else keep_whole(sharding, axis)


@functools.lru_cache(maxsize=256)
def _shard_module(shape: tuple[int, ...], dtype: Any, fmt: str, axis: int, rule: str) -> bytes:
    """A StableHLO module that is the call on one shard."""
    rules = {known.name: known for known in SCALE_RULES}

    def quantize_shard(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _primitive.bind(x, fmt=as_format(fmt), rule=rules[rule], axis=axis)

    with lowering_mode("custom_call"):
        traced = jax.jit(quantize_shard).trace(jax.ShapeDtypeStruct(shape, dtype))
        return bytecode(traced.lower(lowering_platforms=(NEURON,)).compiler_ir("stablehlo"))


register_partitioner(QUANTIZE_TARGET, _partition, plugins=True)

"""What a lowered module tells Shardy, so that sharded arrays are quantized where they lie.

Plain operations need no words: Shardy follows reshapes and reductions, and where every shard holds whole blocks of 32
nothing is communicated. Two things it cannot see. A custom call is opaque, so it carries a rule that says which
dimensions of its operands and results are sharded alike. And an axis that is no multiple of 32 is padded to whole
blocks, which XLA would do by exchanging halos between shards; its shards are gathered once instead.
"""

import dataclasses
import itertools
from typing import Any

from jax_mx._compat import bitcast, ir, uses_shardy
from jax_mx._dot_dims import DotDims
from jax_mx._formats import BLOCK_SIZE, LANES

SHARDING_RULE = "sdy.sharding_rule"

Factors = tuple[tuple[int, ...], ...]
"""For each dimension of an array the indices of the factors whose product it is, the slowest first."""


@dataclasses.dataclass(frozen=True)
class ShardingRule:
    """Which dimensions of an operation's operands and results are sharded alike.

    Attributes:
        sizes: the length of each factor.
        whole: the factors that must not be sharded.
        operands: the factors of each operand's dimensions.
        results: the factors of each result's dimensions.
    """

    sizes: tuple[int, ...]
    whole: tuple[int, ...]
    operands: tuple[Factors, ...]
    results: tuple[Factors, ...]

    def attribute(self) -> Any:
        """The rule in Shardy's own notation, as an attribute of the current MLIR context."""
        operands, results = (", ".join(map(_mapping, arrays)) for arrays in (self.operands, self.results))
        sizes = ", ".join(f"{_name(factor)}={size}" for factor, size in enumerate(self.sizes))
        whole = ", ".join(map(_name, self.whole))
        need = f" need_replication={{{whole}}}" if whole else ""
        return ir.Attribute.parse(f"#sdy.op_sharding_rule<({operands})->({results}) {{{sizes}}}{need}, custom>")


def _name(factor: int) -> str:
    """Shardy counts i, j, ..., z, z_1, z_2, ..."""
    return chr(ord("i") + factor) if factor < 18 else f"z_{factor - 17}"


def _mapping(dims: Factors) -> str:
    return f"[{', '.join(''.join(map(_name, dim)) for dim in dims)}]"


def quantize_rule(shape: tuple[int, ...], axis: int) -> ShardingRule:
    """The rule of a `QuantizeMX` call: each dimension is shared, the quantized one from the block down.

    As an einsum it is `"... (k c e) -> ... (k c), ... k"`: 8 containers c in a block, 4 elements e in a container.
    An axis with a partial block at its end cannot be sharded.
    """
    rank, length = len(shape), shape[axis]
    blocks, containers, elements = axis, rank, rank + 1
    sizes = [*shape, BLOCK_SIZE // LANES, LANES]
    sizes[axis] = -(-length // BLOCK_SIZE)
    whole: tuple[int, ...] = (elements,)
    split: Factors = ((blocks, containers, elements), (blocks, containers), (blocks,))
    if length % BLOCK_SIZE != 0:
        sizes[containers:] = [length // LANES, length]
        whole = (blocks, containers, elements)
        split = ((elements,), (containers,), (blocks,))
    elif length == BLOCK_SIZE:  # Shardy wants no factor of size 1 beside others
        split = ((containers, elements), (containers,), (blocks,))
    x, data, scale = (tuple(dim if d == axis else (d,) for d in range(rank)) for dim in split)
    return ShardingRule(tuple(sizes), whole, (x,), (data, scale))


def scaled_dot_rule(lhs: tuple[int, ...], rhs: tuple[int, ...], dims: DotDims) -> ShardingRule:
    """The rule of a `__op$block_scaled_dot` call for the shapes of its containers: as of any product.

    A sharded contracting dimension leaves sums of the blocks of each shard, which XLA adds up over the shards.
    """
    (lhs_axis,), (rhs_axis,) = dims.contracting
    (lhs_batch, rhs_batch), lhs_free, rhs_free = dims.batch, dims.free(0, len(lhs)), dims.free(1, len(rhs))
    kept = [lhs[d] for d in (*lhs_batch, *lhs_free)] + [rhs[d] for d in rhs_free]
    containers_of_block = BLOCK_SIZE // LANES
    blocks, containers = len(kept), len(kept) + 1
    length = lhs[lhs_axis]
    split: Factors = ((blocks, containers), (blocks,))
    sizes = [*kept, -(-length // containers_of_block), containers_of_block]
    whole: tuple[int, ...] = (containers,)
    if length % containers_of_block != 0 or length == containers_of_block:
        sizes[containers] = length
        split, whole = ((containers,), (blocks,)), (blocks, containers)
    lhs_factors = dict(zip((*lhs_batch, *lhs_free), itertools.count(), strict=False))
    rhs_factors = dict(zip(rhs_batch, itertools.count(), strict=False))
    rhs_factors |= dict(zip(rhs_free, itertools.count(len(lhs_factors)), strict=False))
    operands = []
    for of_axis in split:  # the containers of both sides, then the scales of both sides
        for factors, axis in ((lhs_factors, lhs_axis), (rhs_factors, rhs_axis)):
            operands.append(tuple(of_axis if d == axis else (factors[d],) for d in range(len(factors) + 1)))
    result = tuple((factor,) for factor in range(len(kept)))
    return ShardingRule(tuple(sizes), whole, tuple(operands), (result,))


def is_partitioned(ctx: Any) -> bool:
    """Whether a lowering context makes a module that Shardy will partition.

    The body of a `shard_map` over all axes of its mesh is none: it is written for one shard.
    """
    return uses_shardy() and _has_several_devices(ctx)


def _has_several_devices(ctx: Any) -> bool:
    axes = ctx.module_context.axis_context
    manual = getattr(axes, "manual_axes", None)
    if manual is not None:
        return set(manual) != set(axes.mesh.axis_names)
    return getattr(axes, "num_devices", None) not in (None, 1)


def check_partitioner(ctx: Any, target: str) -> None:
    """Refuses a custom call in a module that GSPMD would partition.

    It would ask for shardings that nobody can give it. An error in its callback ends the process, so this one is
    raised when the module is lowered, even if nothing in it is sharded.

    Raises:
        ValueError: Shardy is off and the module is for several devices.
    """
    if not uses_shardy() and _has_several_devices(ctx):
        raise ValueError(
            f"jax_use_shardy_partitioner: got False for a module of several devices with the custom call {target}, "
            "want True: only Shardy can shard it"
        )


def attach(ctx: Any, op: Any, rule: ShardingRule) -> None:
    """Gives a custom call its rule, if the module will be partitioned."""
    if is_partitioned(ctx) and all(isinstance(size, int) and size > 0 for size in rule.sizes):
        op.attributes[SHARDING_RULE] = rule.attribute()


def gather_partial_blocks(ctx: Any, x: Any, axis: int) -> Any:
    """Keeps `axis` of a bfloat16 or float16 value whole, if it is no multiple of 32 and the module is partitioned."""
    shape = ctx.avals_in[0].shape
    static = all(isinstance(length, int) for length in shape)
    if not is_partitioned(ctx) or not static or shape[axis] % BLOCK_SIZE == 0:
        return x
    dims = ", ".join("{}" if d == axis else "{?}" for d in range(len(shape)))
    # The mesh is not known here and not needed: no axis of any mesh may split this dimension, any may the others.
    sharding = ir.Attribute.parse(f"#sdy.sharding<mesh<[]>, [{dims}]>")
    # As integers: XLA:CPU gathers narrow floats as float32.
    bits = bitcast(x, "ui16")
    kept = ir.Operation.create(
        "sdy.sharding_constraint", results=[bits.type], operands=[bits], attributes={"sharding": sharding}
    )
    return bitcast(kept.result, str(ir.RankedTensorType(x.type).element_type))

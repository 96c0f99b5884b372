"""Where the leaves of a quantized array are put: one sharding, of the logical array, for containers and scale bytes."""

import math
from typing import Any, cast

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jax_mx._formats import BLOCK_SIZE

Leaves = tuple[jax.Array, jax.Array]


def placed(leaves: Leaves, shape: tuple[int, ...], axis: int, sharding: Any) -> Leaves:
    """Data and scale of an array of `shape` quantized along `axis`, put where `sharding` says.

    Raises:
        TypeError: it is no sharding of a kind that names mesh axes.
        ValueError: a shard would not hold whole blocks, or the sharding does not fit the shape.
    """
    named = _named(sharding)
    _check_whole_blocks(named, shape, axis)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        named.shard_shape(shape)  # an axis that cannot be split evenly is told of in the logical shape, not in data's
        return cast(Leaves, jax.device_put(leaves, sharding))
    # While tracing, jax.device_put asks nothing of automatic axes.
    kinds = dict(zip(named.mesh.axis_names, named.mesh.axis_types, strict=True))
    used = [name for entry in named.spec for name in _names(entry)] or kinds
    if any(kinds[name] == AxisType.Explicit for name in used):
        return cast(Leaves, jax.sharding.reshard(leaves, sharding))
    return cast(Leaves, jax.lax.with_sharding_constraint(leaves, sharding))


def _named(sharding: Any) -> NamedSharding:
    if isinstance(sharding, NamedSharding):
        return sharding
    if not isinstance(sharding, PartitionSpec):
        raise TypeError(
            f"sharding: got {type(sharding).__name__}, want a NamedSharding, or a PartitionSpec in jax.set_mesh; "
            "jax.device_put takes a device"
        )
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        raise ValueError(f"sharding: got {sharding} outside jax.set_mesh, want a NamedSharding there")
    return NamedSharding(mesh, sharding)


def _names(entry: Any) -> tuple[Any, ...]:
    """The mesh axes of one entry of a PartitionSpec; an unconstrained one has none."""
    return (entry,) if isinstance(entry, str) else entry if isinstance(entry, tuple) else ()


def _check_whole_blocks(sharding: NamedSharding, shape: tuple[int, ...], axis: int) -> None:
    names = _names(sharding.spec[axis]) if axis < len(sharding.spec) else ()
    pieces = math.prod(sharding.mesh.shape[name] for name in names)
    blocks, rest = divmod(shape[axis], BLOCK_SIZE)
    if pieces == 1 or (blocks % pieces == 0 and rest == 0):
        return
    over = f"{'axis' if len(names) == 1 else 'axes'} {' and '.join(map(repr, names))}"
    has = f"{blocks} block{'' if blocks == 1 else 's'} of {BLOCK_SIZE}{' and a partial one' if rest else ''}"
    raise ValueError(
        f"sharding: got {pieces} shards along axis {axis} of shape {shape}, over mesh {over}; it is quantized along "
        f"that axis, which has {has}, want as many whole blocks in each; leave that axis None in the PartitionSpec"
    )

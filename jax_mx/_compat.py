"""Everything `jax_mx` needs from jax that jax does not promise to keep, in one place.

Checked with jax 0.10.2 and 0.12. A jax release that moves one of these names breaks this file and no other.
"""

import io
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import numpy as np
from jax._src import xla_bridge
from jax._src.core import auto_insert_reshard as auto_insert_reshard
from jax._src.sharding_impls import ShardingContext, SPMDAxisContext
from jax._src.sharding_impls import canonicalize_sharding as canonicalize_sharding
from jax._src.traceback_util import api_boundary as api_boundary
from jax._src.traceback_util import register_exclusion as hide_from_tracebacks
from jax.extend.core import Primitive as Primitive
from jax.extend.source_info_util import register_exclusion as hide_from_source_info
from jax.interpreters import ad as ad
from jax.interpreters import batching as batching
from jax.interpreters import mlir as mlir
from jaxlib import xla_client
from jaxlib.mlir import ir as ir


def hide_frames(directory: str) -> None:
    """Leaves the files under `directory` out of filtered tracebacks and of source locations in lowered modules.

    An error raised below an `api_boundary` then ends at the caller's own line, and so does the metadata of an
    instruction: the caller's code is what either one is about.
    """
    hide_from_tracebacks(directory)
    hide_from_source_info(directory)


def uses_shardy() -> bool:
    """Whether jax partitions modules with Shardy, as it does by default, and not with GSPMD."""
    return bool(getattr(jax.config, "jax_use_shardy_partitioner"))  # noqa: B009  a name that types do not know


def bitcast(value: Any, element_type: str) -> Any:
    """A StableHLO value with its bits read as another element type of the same width, in MLIR's spelling."""
    shape = ir.RankedTensorType(value.type).shape
    result = ir.RankedTensorType.get(shape, ir.Type.parse(element_type))
    return ir.Operation.create("stablehlo.bitcast_convert", results=[result], operands=[value]).result


def bytecode(module: Any) -> bytes:
    """A StableHLO module as MLIR bytecode."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def dot_general_aval(lhs: Any, rhs: Any, dimension_numbers: Any, dtype: Any, out_sharding: Any) -> Any:
    """The abstract value of a product of two abstract values, whatever their dtypes.

    It is `dot_general`'s own, so it knows as much as that one does of meshes, shardings and mapped axes.
    """
    lhs, rhs = (aval.update(dtype=jax.numpy.dtype(dtype), weak_type=False) for aval in (lhs, rhs))
    out, _ = jax.lax.dot_general_p.abstract_eval(
        lhs,
        rhs,
        dimension_numbers=dimension_numbers,
        precision=None,
        preferred_element_type=dtype,
        out_sharding=out_sharding,
    )
    return out


def set_user_context(context: Any, value: Any) -> None:
    """Sets the value that a `jax.make_user_context` has in every thread, outside its `with` statements."""
    context.set_global(value)


def runs_on_one_device(module_context: Any) -> bool:
    """Whether a module, or the part of it that is being lowered, is one device's own and partitioned no further."""
    axis_context = module_context.axis_context
    if isinstance(axis_context, ShardingContext):
        return axis_context.num_devices == 1
    if isinstance(axis_context, SPMDAxisContext):
        return axis_context.mesh.size == 1 or axis_context.manual_axes == frozenset(axis_context.mesh.axis_names)
    return False


def permuted_sharding(aval: Any, order: tuple[int, ...]) -> Any:
    """The sharding of an abstract value after a transpose by `order`; None where no mesh has explicit axes."""
    sharding = aval.sharding
    if sharding.mesh.empty or not sharding.mesh.explicit_axes:
        return None
    partitions = tuple(sharding.spec.partitions[d] for d in order)
    return sharding.update(spec=sharding.spec.update(partitions=partitions))


def register_batcher(primitive: Any, batch: Callable[..., Any]) -> None:
    """Sets how `jax.vmap` maps a primitive of one result.

    Args:
        primitive: the primitive.
        batch: from the mesh axes with explicit types that the mapped dimension is sharded over (None for none), the
            operands, their mapped dimensions, at least one of them not None, and the parameters, gives the result and
            its mapped dimension. The primitives of jax know those mesh axes too: no operand's type need tell them.
    """

    def batch_mapped(axis_data: Any, operands: Sequence[Any], mapped: Sequence[int | None], **params: Any) -> Any:
        if all(at is None for at in mapped):
            return primitive.bind(*operands, **params), None
        return batch(axis_data.explicit_mesh_axis, operands, mapped, **params)

    batching.fancy_primitive_batchers[primitive] = batch_mapped


def with_mapped_dimension(x: Any, at: int | None, to: int, size: int, mesh_axes: Any) -> Any:
    """`x` with its mapped dimension moved from `at` to `to`; without one it is repeated, sharded over `mesh_axes`."""
    return batching.broadcast(x, size, to, mesh_axes) if at is None else jax.numpy.moveaxis(x, at, to)


def batched_sharding(sharding: Any, at: int, mesh_axes: Any) -> Any:
    """The sharding of a result that has one more dimension, mapped and sharded over `mesh_axes` (None for none)."""
    if sharding is None:
        return None
    partitions = sharding.spec.partitions
    partitions += (None,) * (at - len(partitions))  # a spec may be shorter than the result's rank
    partitions = (*partitions[:at], mesh_axes, *partitions[at:])
    return sharding.update(spec=sharding.spec.update(partitions=partitions))


def with_whole_blocks(x: Any, axis: int, block: int) -> Any:
    """`x` with `axis` gathered where a mesh with explicit axes would cut through its blocks; else `x` as it is."""
    sharding = jax.typeof(x).sharding
    if sharding.mesh.empty or not sharding.mesh.explicit_axes:
        return x
    names = sharding.spec.partitions[axis]
    names = (names,) if isinstance(names, str) else tuple(names or ())
    parts = math.prod(sharding.mesh.shape[name] for name in names)
    if x.shape[axis] % (parts * block) == 0 or parts == 1:
        return x
    partitions = (*sharding.spec.partitions[:axis], None, *sharding.spec.partitions[axis + 1 :])
    return jax.sharding.reshard(x, sharding.update(spec=sharding.spec.update(partitions=partitions)))


def register_partitioner(target: str, partition: Callable[..., Any], *, plugins: bool) -> None:
    """Tells XLA's SPMD partitioner how to split a custom call; without that it gathers what the call takes.

    Args:
        target: the call's target.
        partition: from shapes and shardings of the operands, shape and sharding of the result and the backend_config,
            gives the module of one shard as text or bytecode, and the shardings that it needs and makes.
        plugins: whether to tell the compilers of plugins as well as the one that comes with jaxlib.
    """

    def keep(sharding: Any, _shape: Any, _config: bytes) -> Any:
        return sharding

    def infer(*_args: Any) -> NoReturn:
        raise NotImplementedError(f"{target}: only Shardy can shard it; leave jax_use_shardy_partitioner on")

    def register(c_api: Any = None) -> None:
        xla_client.register_custom_call_partitioner(
            target, keep, partition, infer, can_side_effecting_have_replicated_sharding=True, c_api=c_api
        )

    register()
    if plugins:
        xla_bridge.register_plugin_callbacks(register)


REPLICATED = xla_client.OpSharding.Type.REPLICATED


def tiles(sharding: Any) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Device numbers of an HLO sharding, one dimension for each of the array's and then of each kind of subgroup."""
    shape = sharding.tile_assignment_dimensions()
    devices = np.asarray(sharding.tile_assignment_devices()).reshape(shape)
    subgroups = list(sharding.subgroup_types())
    if sharding.replicate_on_last_tile_dim() and not subgroups:
        subgroups = [REPLICATED]
    return devices, subgroups


def from_tiles(devices: np.ndarray[Any, Any], subgroups: list[Any]) -> Any:
    """The inverse of `tiles`."""
    proto = xla_client.OpSharding()
    proto.type = xla_client.OpSharding.Type.OTHER
    proto.tile_assignment_dimensions = list(devices.shape)
    proto.tile_assignment_devices = devices.ravel().tolist()
    proto.last_tile_dims = subgroups
    return xla_client.HloSharding.from_proto(proto)


def keep_whole(sharding: Any, axis: int) -> Any:
    """The same sharding but with one axis of the array in one piece, which every device on its way then holds."""
    devices, subgroups = tiles(sharding)
    gathered = np.expand_dims(np.moveaxis(devices, axis, -1), axis)
    return from_tiles(gathered, [*subgroups, REPLICATED])


def tile_coordinates(sharding: Any) -> np.ndarray[Any, Any] | None:
    """Which tile each device holds, [devices, rank of the array]; None if all hold all, or see different arrays."""
    if not sharding.is_tiled():
        return None
    devices, subgroups = tiles(sharding)
    if any(kind != REPLICATED for kind in subgroups):
        return None
    places = np.indices(devices.shape).reshape(devices.ndim, -1).T
    return places[np.argsort(devices.ravel()), : devices.ndim - len(subgroups)]


def tuple_sharding(shape: Any, shardings: Sequence[Any]) -> Any:
    """The sharding of a tuple."""
    return xla_client.HloSharding.tuple_sharding(shape, list(shardings))

"""Everything `jax_mx` needs from jax that jax does not promise to keep, in one place.

Checked with jax 0.10.2 and 0.12. A jax release that moves one of these names breaks this file and no other.
"""

import math
from typing import Any

import jax
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
from jaxlib.mlir import ir as ir


def hide_frames(directory: str) -> None:
    """Leaves the files under `directory` out of filtered tracebacks and of source locations in lowered modules.

    An error raised below an `api_boundary` then ends at the caller's own line, and so does the metadata of an
    instruction: the caller's code is what either one is about.
    """
    hide_from_tracebacks(directory)
    hide_from_source_info(directory)


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


def batched_sharding(sharding: Any, at: int) -> Any:
    """The sharding of a result that has one more, unsharded, dimension."""
    if sharding is None:
        return None
    partitions = (*sharding.spec.partitions[:at], None, *sharding.spec.partitions[at:])
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

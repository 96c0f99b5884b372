"""Everything `jax_mx` needs from jax that jax does not promise to keep, in one place.

Checked with jax 0.10.2 and 0.12. A jax release that moves one of these names breaks this file and no other.
"""

from typing import Any

import jax
from jax._src.core import auto_insert_reshard as _auto_insert_reshard
from jax._src.sharding_impls import ShardingContext, SPMDAxisContext
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


def match_mesh_types(*arrays: jax.Array) -> list[jax.Array]:
    """Makes arrays vary over the same axes of a mesh inside `jax.shard_map`, as operands of one primitive must."""
    return list(_auto_insert_reshard(*arrays))


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

"""Everything `jax_mx` needs from jax that jax does not promise to keep, in one place.

Checked with jax 0.10.2 and 0.12. A jax release that moves one of these names breaks this file and no other.
"""

from typing import Any

import jax
from jax._src.core import auto_insert_reshard as auto_insert_reshard
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


def dot_general_aval(lhs: Any, rhs: Any, dimension_numbers: Any, dtype: Any) -> Any:
    """The abstract value of a product of two abstract values, whatever their dtypes.

    It is `dot_general`'s own, so it knows as much as that one does of meshes, shardings and mapped axes.
    """
    lhs, rhs = (aval.update(dtype=jax.numpy.dtype(dtype), weak_type=False) for aval in (lhs, rhs))
    out, _ = jax.lax.dot_general_p.abstract_eval(
        lhs, rhs, dimension_numbers=dimension_numbers, precision=None, preferred_element_type=dtype, out_sharding=None
    )
    return out

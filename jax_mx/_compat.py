"""Everything `jax_mx` needs from jax that jax does not promise to keep, in one place.

Checked with jax 0.10.2 and 0.12. A jax release that moves one of these names breaks this file and no other.
"""

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

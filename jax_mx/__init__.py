"""Microscaling (MX) quantization for JAX, exact to the last bit.

`quantize_mx` turns bfloat16 or float16 arrays into the 2-tuple `<data_x4, e8m0>` of the Neuron compiler's `QuantizeMX`
custom call: four narrow elements a container and one E8M0 scale byte per 32 elements. It runs under every JAX
transformation and lowers to that custom call where the platform has it.
"""

import importlib as _importlib
import pathlib as _pathlib
import typing as _typing

from jax_mx import _lowering as _lowering
from jax_mx import _partitioner as _partitioner
from jax_mx import _partitioner_dot as _partitioner_dot
from jax_mx import _scaled_matmul_lowering as _scaled_matmul_lowering
from jax_mx import config as config
from jax_mx import tile as tile
from jax_mx._api import dequantize_mx as dequantize_mx
from jax_mx._api import fake_quantize_mx as fake_quantize_mx
from jax_mx._api import quantize_mx as quantize_mx
from jax_mx._codes import pack_x4 as pack_x4
from jax_mx._codes import unpack_x4 as unpack_x4
from jax_mx._compare_rules import RuleComparison as RuleComparison
from jax_mx._compare_rules import RuleError as RuleError
from jax_mx._compare_rules import compare_rules as compare_rules
from jax_mx._compat import hide_frames as _hide_frames
from jax_mx._dot_general import MXDotGeneral as MXDotGeneral
from jax_mx._dot_general import mx_dot_general as mx_dot_general
from jax_mx._implementation import Implementation as Implementation
from jax_mx._implementation import implementation as implementation
from jax_mx._lowering_mode import EXPORT_DISABLED_CHECKS as EXPORT_DISABLED_CHECKS
from jax_mx._lowering_mode import lowering_mode as lowering_mode
from jax_mx._mx_array import MXArray as MXArray
from jax_mx._recipe import MXFP4_WEIGHTS as MXFP4_WEIGHTS
from jax_mx._recipe import MXFP8 as MXFP8
from jax_mx._recipe import MXFP8_FORWARD as MXFP8_FORWARD
from jax_mx._recipe import MXRecipe as MXRecipe
from jax_mx._scale_rule import EMAX as EMAX
from jax_mx._scale_rule import EMAX_ALT as EMAX_ALT
from jax_mx._scale_rule import NKI as NKI
from jax_mx._scale_rule import OCP_FLOOR as OCP_FLOOR
from jax_mx._scale_rule import ScaleRule as ScaleRule
from jax_mx._scaled_matmul import scaled_matmul_mx as scaled_matmul_mx

if _typing.TYPE_CHECKING:
    from jax_mx import checkpoint as checkpoint
    from jax_mx import equinox as equinox
    from jax_mx import plot as plot

__version__ = "0.1.0"

# Imported when they are asked for: they take time, and packages that this one does not need.
_LAZY_MODULES = ("checkpoint", "equinox", "plot")

if not _typing.TYPE_CHECKING:  # a type checker would take every name for one of the package's

    def __getattr__(name: str) -> object:
        if name in _LAZY_MODULES:
            return _importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES})


_hide_frames(str(_pathlib.Path(__file__).parent))

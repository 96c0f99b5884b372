"""`compare_rules`: what each scale rule costs on a given tensor, and who uses it."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_mx._api import dequantize_mx, quantize_mx
from jax_mx._check import OUT_DTYPES, check_array, check_axis, check_multiple_of_lanes
from jax_mx._compat import api_boundary
from jax_mx._formats import BLOCK_SIZE, DTypeLike, ElementFormat, as_format
from jax_mx._other_rules import OTHER_RULES, OtherRule
from jax_mx._scale_rule import SCALE_RULES, ScaleRule

USED_BY = {
    "EMAX": "neuronx-cc 2.24 simulator; QuantizeMX",
    "EMAX_ALT": "neuronx-cc 2.24 simulator, alternative EMAX on",
    "NKI": "nki.isa.quantize_mx since SDK 2.31",
    "OCP_FLOOR": "OCP MX v1.0 sample conversion",
    "torchao FLOOR": "torchao's default mode",
    "torchao RCEIL": "torchao RCEIL; Transformer Engine; jax.nn.scaled_dot_general",
    "torchao CEIL": "torchao CEIL",
    "torchao EVEN": "torchao EVEN",
}
"""Who computes scales so, as their published sources say."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleError:
    """What one rule costs on a tensor.

    Attributes:
        rule: its name.
        snr_db: signal-to-noise ratio in decibels; infinite where nothing was lost.
        max_error: largest absolute error of an element.
        saturated: share of elements larger, under their scale, than the format's largest value, which they become.
        underflow: share of elements that were not zero and became zero.
        used_by: who uses this rule.
    """

    rule: str
    snr_db: float
    max_error: float
    saturated: float
    underflow: float
    used_by: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleComparison:
    """The rules side by side; `print` shows them as a table.

    Attributes:
        format: the element format's name.
        shape: the tensor's shape.
        axis: the quantized axis.
        skipped_blocks: blocks that hold a NaN or Inf, which no number here counts.
        rows: one for each rule.
    """

    format: str
    shape: tuple[int, ...]
    axis: int
    skipped_blocks: int
    rows: tuple[RuleError, ...]

    def __str__(self) -> str:
        head = f"{self.format}[{', '.join(map(str, self.shape))}] along axis {self.axis}"
        if self.skipped_blocks:
            head += f", without {self.skipped_blocks} blocks that hold a NaN or Inf"
        lines = [head, f"{'rule':<14}{'SNR dB':>9}{'max error':>12}{'saturated':>11}{'underflow':>11}  used by"]
        lines += [
            f"{r.rule:<14}{r.snr_db:>9.2f}{r.max_error:>12.4g}{r.saturated:>11.3%}{r.underflow:>11.3%}  {r.used_by}"
            for r in self.rows
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON types; an infinite ratio is None."""
        made = dataclasses.asdict(self)
        for row in made["rows"]:
            row["snr_db"] = None if math.isinf(row["snr_db"]) else row["snr_db"]
        return made


@api_boundary
def compare_rules(x: Any, dtype: DTypeLike = "float8_e4m3fn", *, axis: int = -1) -> RuleComparison:
    """Quantizes a tensor by every scale rule, those of other libraries too, and compares what is lost.

    Args:
        x: bfloat16, float16 or float32[..., K, ...], K a multiple of 4; float32 is rounded to bfloat16 first, and
            errors are those against the rounded values.
        dtype: the element format.
        axis: the quantized axis.

    Returns:
        The comparison; `print` it, or see `jax_mx.plot`.

    Raises:
        TypeError: an argument is of another type, or `x` is traced.
        ValueError: `axis` is out of range, its length is not a multiple of 4, `x` is empty, or no block is free
            of NaN and Inf.
    """
    fmt = as_format(dtype)
    x = check_array("x", x, OUT_DTYPES)
    if isinstance(x, jax.core.Tracer):
        raise TypeError("x: got a traced array, want one with values: call compare_rules outside jax.jit and the like")
    axis = check_axis(axis, x.shape)
    check_multiple_of_lanes("x", x.shape, axis)
    if x.size == 0:
        raise ValueError(f"x: got shape {x.shape}, want one or more elements")
    values = x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x
    last = jnp.moveaxis(values, axis, -1)
    blocks, real = _blocks(np.asarray(last, np.float64))
    finite = np.isfinite(blocks).all(axis=-1)
    if not finite.any():
        rounded = ", after rounding float32 to bfloat16" if x.dtype == jnp.float32 else ""
        raise ValueError(
            f"x: got a NaN or Inf in every one of the {len(blocks)} blocks of {BLOCK_SIZE}{rounded}, want a block of "
            "finite values, or more"
        )
    rows = []
    for rule in SCALE_RULES:
        elements, scale = _by_our_rule(last, fmt, rule)
        rows.append(_row(rule.name, fmt, blocks[finite], real[finite], elements[finite], scale[finite]))
    for other in OTHER_RULES:
        rows.append(_row(other.name, fmt, blocks[finite], real[finite], *_by_other_rule(blocks[finite], fmt, other)))
    return RuleComparison(
        format=fmt.name,
        shape=tuple(x.shape),
        axis=axis,
        skipped_blocks=int((~finite).sum()),
        rows=tuple(rows),
    )


Array = np.ndarray[Any, Any]


def _blocks(x: Array) -> tuple[Array, Array]:
    """[blocks, 32], the last block of a row filled up with zeros, and which of the elements are real."""
    missing = -x.shape[-1] % BLOCK_SIZE
    widths = [(0, 0)] * (x.ndim - 1) + [(0, missing)]
    real = np.pad(np.ones(x.shape, np.bool_), widths)
    return np.pad(x, widths).reshape(-1, BLOCK_SIZE), real.reshape(-1, BLOCK_SIZE)


def _by_our_rule(x: Any, fmt: ElementFormat, rule: ScaleRule) -> tuple[Array, Array]:
    data, scale = quantize_mx(x, fmt.name, rule=rule)
    exact = dequantize_mx(data, scale, fmt.name)
    return _blocks(np.asarray(exact, np.float64))[0], np.asarray(scale, np.int64).reshape(-1, 1)


def _by_other_rule(blocks: Array, fmt: ElementFormat, rule: OtherRule) -> tuple[Array, Array]:
    elements, scale = rule.quantize(blocks, fmt)
    return np.ldexp(elements, scale - 127), scale


def _row(name: str, fmt: ElementFormat, blocks: Array, real: Array, values: Array, scale: Array) -> RuleError:
    error = np.abs(values - blocks)
    noise = float((error**2).sum())
    count = int(real.sum())
    saturated = np.abs(blocks) > np.ldexp(fmt.max_value, scale - 127)
    return RuleError(
        rule=name,
        snr_db=10 * math.log10(float((blocks**2).sum()) / noise) if noise else math.inf,
        max_error=float(error.max()),
        saturated=float(saturated.sum()) / count,
        underflow=float(((values == 0) & (blocks != 0)).sum()) / count,
        used_by=USED_BY[name],
    )

"""The contract of one `__op$block_scaled_dot` call, rule by rule.

    out: f32|bf16[batch..., m, n] = __op$block_scaled_dot(lhs: u32[...], rhs: u32[...], lhs_scale, rhs_scale)

The dimension lists stand in the configuration, under `scaled_dot_backend_config`. The codes are those of the compiler's
published error pages. That rhs must be u32 as well, and that a negative contracting index counts from the end (the
pages are silent), are this project's decisions.
"""

import functools
import math
from dataclasses import dataclass

from lowering.calls import Call, Signature
from lowering.config import Parsed, ScaledDotConfig, parse_nested_json
from lowering.diagnostics import Diagnostic, Severity, shorten
from lowering.quantize_rules import FP8_DTYPES, config_problems, unknown_keys
from lowering.rules import Rule, Violation, judge
from lowering.shapes import ArrayShape

CONFIG_KEY = "scaled_dot_backend_config"
_OUTPUT_ELEMENT_TYPES = ("f32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Side:
    """One factor of the product.

    Attributes:
        name: `lhs` or `rhs`.
        shape: Its shape, None when the call does not have its four operands.
        batch: Configured batch dimensions.
        contracting: Configured contracting dimensions.
        batch_known: Whether the configuration's batch dimensions could be read; nothing is said about them otherwise.
        contracting_known: Likewise for the contracting dimensions.
    """

    name: str
    shape: ArrayShape | None
    batch: tuple[int, ...]
    contracting: tuple[int, ...]
    batch_known: bool = True
    contracting_known: bool = True

    @property
    def rank(self) -> int:
        """Number of dimensions, 0 when there is no operand."""
        return 0 if self.shape is None else self.shape.rank

    @property
    def bad_batch(self) -> tuple[int, ...]:
        """Batch dimensions out of range; negative ones are."""
        return () if self.shape is None else tuple(d for d in self.batch if d not in range(self.rank))

    @property
    def bad_contracting(self) -> tuple[int, ...]:
        """Contracting dimensions out of range, counted from the end when negative."""
        return () if self.shape is None else tuple(d for d in self.contracting if d not in range(-self.rank, self.rank))

    @property
    def effective_contracting(self) -> tuple[int, ...]:
        """Contracting dimensions in use, non-negative: those configured and in range, else the last."""
        if self.rank == 0 or not self.contracting_known:
            return ()
        return tuple(d % self.rank for d in self.contracting or (-1,) if d in range(-self.rank, self.rank))

    @property
    def batch_size(self) -> int | None:
        """Product of the batch dimensions' sizes, None when one of them is out of range or dynamic."""
        if self.shape is None or self.bad_batch:
            return None
        sizes = [self.shape.dims[d] for d in self.batch]
        known = [s for s in sizes if s is not None]
        return math.prod(known) if len(known) == len(sizes) else None

    @property
    def contracting_size(self) -> int | None:
        """Size of the first contracting dimension, None when there is none or it is dynamic."""
        if self.shape is None or self.bad_contracting or not self.effective_contracting:
            return None
        return self.shape.dims[self.effective_contracting[0]]

    @property
    def contracted_batch(self) -> tuple[int, ...]:
        """Dimensions that are both contracted and batch."""
        return tuple(d for d in self.effective_contracting if d in self.batch)


@dataclass(frozen=True, kw_only=True)
class ScaledDotFacts:
    """A call together with what its configuration says."""

    call: Signature
    parsed: Parsed
    config: ScaledDotConfig
    lhs: Side
    rhs: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both factors."""
        return self.lhs, self.rhs

    def say(self, attribute: str) -> str:
        """Says an attribute of those sides for which it is not empty: `lhs [3], rhs [0]`."""
        parts = [(s.name, getattr(s, attribute)) for s in self.sides]
        return ", ".join(f"{name} [{shorten(value)}]" for name, value in parts if value)


@functools.lru_cache(maxsize=4096)
def facts_of(call: Signature) -> ScaledDotFacts:
    """Reads a call's configuration and puts its facts together."""
    # The text `None` is what a Python frontend writes for an absent configuration.
    absent = call.config is None or call.config.strip() == "None"
    parsed = Parsed(values={}) if absent else parse_nested_json(call.config or "", CONFIG_KEY, ScaledDotConfig)
    config = parsed.build(ScaledDotConfig)
    lhs, rhs = call.operands[:2] if len(call.operands) == 4 else (None, None)
    return ScaledDotFacts(
        call=call,
        parsed=parsed,
        config=config,
        lhs=_side("lhs", lhs, parsed, config.lhs_batch_dimensions, config.lhs_contracting_dimensions),
        rhs=_side("rhs", rhs, parsed, config.rhs_batch_dimensions, config.rhs_contracting_dimensions),
    )


def _side(
    name: str, shape: ArrayShape | None, parsed: Parsed, batch: tuple[int, ...], contracting: tuple[int, ...]
) -> Side:
    return Side(
        name=name,
        shape=shape,
        batch=batch,
        contracting=contracting,
        batch_known=parsed.readable(f"{name}_batch_dimensions"),
        contracting_known=parsed.readable(f"{name}_contracting_dimensions"),
    )


def check_scaled_dot(call: Call) -> list[Diagnostic]:
    """Returns every violation of one call, then the warnings about it."""
    return [violation.at(call) for violation in violations(call.signature)]


@functools.lru_cache(maxsize=4096)
def violations(call: Signature) -> tuple[Violation, ...]:
    """Returns every rule that a call breaks, whatever its name and place."""
    return judge(RULES, facts_of(call))


def _batch_differs(f: ScaledDotFacts) -> bool:
    if any(s.shape is None or not s.batch_known for s in f.sides):
        return False
    if len(f.lhs.batch) != len(f.rhs.batch):
        return True
    sizes = (f.lhs.batch_size, f.rhs.batch_size)
    return None not in sizes and sizes[0] != sizes[1]


def _contracting_differs(f: ScaledDotFacts) -> bool:
    sizes = (f.lhs.contracting_size, f.rhs.contracting_size)
    return None not in sizes and sizes[0] != sizes[1]


def _output(f: ScaledDotFacts) -> str:
    return shorten(f.call.results) or "nothing"


RULES: tuple[Rule[ScaledDotFacts], ...] = (
    Rule(
        "NCC_EVRF043",
        lambda f: len(f.call.operands) != 4,
        lambda f: f"__op$block_scaled_dot has {len(f.call.operands)} operands",
        "give exactly four operands: lhs, rhs, lhs_scale, rhs_scale",
    ),
    Rule(
        "NCC_EVRF044",
        lambda f: any(s.shape is not None and s.shape.element_type != "u32" for s in f.sides),
        lambda f: f"the factors are lhs {f.lhs.shape} and rhs {f.rhs.shape}",
        "pass u32 containers of four fp8 elements on both sides, as QuantizeMX makes them",
    ),
    Rule(
        "NCC_EVRF045",
        lambda f: len(f.call.results) != 1 or f.call.results[0].element_type not in _OUTPUT_ELEMENT_TYPES,
        lambda f: f"the result is {_output(f)}",
        "make it one array of f32 or bf16",
    ),
    Rule(
        "NCC_EVRF046",
        lambda f: f.lhs.shape is not None and f.lhs.rank < 2,
        lambda f: f"lhs is {f.lhs.shape}, of rank {f.lhs.rank}",
        "give lhs at least two dimensions",
    ),
    Rule(
        "NCC_EVRF047",
        lambda f: f.rhs.shape is not None and f.rhs.rank < 2,
        lambda f: f"rhs is {f.rhs.shape}, of rank {f.rhs.rank}",
        "give rhs at least two dimensions",
    ),
    Rule(
        "NCC_EVRF048",
        _batch_differs,
        lambda f: (
            f"the batch dimensions differ: lhs {f.lhs.shape} has [{shorten(f.lhs.batch)}], "
            f"rhs {f.rhs.shape} has [{shorten(f.rhs.batch)}]"
        ),
        "name equally many batch dimensions on both sides, with the same number of batches in all",
    ),
    Rule(
        "NCC_EVRF049",
        lambda f: bool(f.parsed.problems),
        lambda f: config_problems(f.parsed),
        'leave it out or write JSON such as {"scaled_dot_backend_config":{"lhs_contracting_dimensions":[1]}}',
    ),
    Rule(
        "NCC_EVRF050",
        _contracting_differs,
        lambda f: (
            f"the contracting sizes differ: {f.lhs.contracting_size} in lhs {f.lhs.shape}, "
            f"{f.rhs.contracting_size} in rhs {f.rhs.shape}"
        ),
        "contract dimensions of equal size (the last ones unless the configuration names others)",
    ),
    Rule(
        "NCC_EVRF053",
        lambda f: any(s.contracted_batch for s in f.sides),
        lambda f: f"a contracting dimension is also a batch dimension: {f.say('contracted_batch')}",
        "contract a dimension that is not a batch dimension",
    ),
    Rule(
        "NCC_EVRF054",
        lambda f: any(s.bad_batch for s in f.sides),
        lambda f: f"batch dimensions out of range: {f.say('bad_batch')}; the ranks are {f.lhs.rank} and {f.rhs.rank}",
        "name batch dimensions between 0 and rank - 1; negative ones are not allowed",
    ),
    Rule(
        "NCC_EVRF055",
        lambda f: any(s.bad_contracting for s in f.sides),
        lambda f: (
            f"contracting dimensions out of range: {f.say('bad_contracting')}; "
            f"the ranks are {f.lhs.rank} and {f.rhs.rank}"
        ),
        "name contracting dimensions that the operand has",
    ),
    Rule(
        "MX004",
        lambda f: not all(s.is_static for s in (*f.call.operands, *f.call.results)),
        lambda f: f"the call has a dynamic dimension: {f.call.shapes}",
        "give every dimension a static size",
    ),
    Rule(
        "MX003",
        lambda f: bool(f.parsed.unknown),
        lambda f: unknown_keys(f.parsed),
        "remove them; no pass reads them",
        Severity.WARNING,
    ),
    Rule(
        "MX013",
        lambda f: f.parsed.readable("element_dtype") and f.config.element_dtype not in FP8_DTYPES,
        lambda f: (
            f"element_dtype is '{shorten(f.config.element_dtype)}'"
            if f.config.element_dtype
            else "element_dtype is missing"
        ),
        "set it to 'float8_e4m3fn' or 'float8_e5m2'; anything else is taken for float8_e5m2",
        Severity.WARNING,
    ),
)

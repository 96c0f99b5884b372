"""The contract of one `QuantizeMX` call, rule by rule.

`QuantizeMX(x: bf16|f16[...]) -> (data: u32[..., K/4, ...], scale: u8[..., ceil(K/32), ...])`, K being the size of the
quantized dimension, which is the last or the one before it. The codes are those of the compiler's published error
pages; the causes and remedies are in this project's words. That several violations of one call are reported together,
in the order of their codes, that the scale may also be f8e8m0fnu, and float4_e2m1fn as a whole (`allow_fp4`) are this
project's decisions.
"""

import functools
from dataclasses import dataclass

from lowering.calls import Call, Signature
from lowering.config import Parsed, Problem, QuantizeMxConfig, parse_json
from lowering.diagnostics import Diagnostic, Severity, shorten
from lowering.rules import Rule, Target, Violation, judge
from lowering.shapes import ArrayShape

BLOCK_SIZE = 32
ELEMENTS_PER_CONTAINER = 4
FP8_DTYPES = ("float8_e5m2", "float8_e4m3fn")
FP4_DTYPE = "float4_e2m1fn"
SCALE_RULES = ("EMAX", "EMAX_ALT", "NKI", "OCP_FLOOR")
_SCALE_ELEMENT_TYPES = ("u8", "f8e8m0fnu")


@dataclass(frozen=True, kw_only=True)
class QuantizeFacts:
    """A call together with what its configuration says and what the pipeline's options allow.

    Attributes:
        call: The call.
        parsed: Its configuration, well-formed values and problems apart.
        config: The well-formed values, defaults elsewhere.
        target: Hardware generation.
        allow_fp4: Whether `float4_e2m1fn` with 16-bit containers is accepted.
    """

    call: Signature
    parsed: Parsed
    config: QuantizeMxConfig
    target: Target
    allow_fp4: bool

    @functools.cached_property
    def operand(self) -> ArrayShape | None:
        """The tensor to quantize, when the call has exactly one operand."""
        return self.call.operands[0] if len(self.call.operands) == 1 else None

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element formats accepted."""
        return (*FP8_DTYPES, FP4_DTYPE) if self.allow_fp4 else FP8_DTYPES

    @functools.cached_property
    def data_element_type(self) -> str:
        """Element type of the data: a container of four elements."""
        return "u16" if self.allow_fp4 and self.config.dtype == FP4_DTYPE else "u32"

    @functools.cached_property
    def axis(self) -> int | None:
        """The quantized dimension, non-negative; None when it is not a legal one."""
        if self.operand is None or not self.parsed.readable("dim"):
            return None
        dim, rank = self.config.dim, self.operand.rank
        dim = dim + rank if dim < 0 else dim
        return dim if rank >= 1 and dim in range(max(rank - 2, 0), rank) else None

    @functools.cached_property
    def quantized_size(self) -> int | None:
        """Size of the quantized dimension; None when it has no legal or no static one."""
        return None if self.axis is None or self.operand is None else self.operand.dims[self.axis]

    def expected_dims(self, divisor: int) -> tuple[int | None, ...] | None:
        """Dims of a result: the operand's, the quantized one divided and rounded up; None when they are unknown."""
        if self.axis is None or self.operand is None or self.quantized_size is None:
            return None
        dims = list(self.operand.dims)
        dims[self.axis] = -(-self.quantized_size // divisor)
        return tuple(dims)


@functools.lru_cache(maxsize=4096)
def facts_of(call: Signature, *, target: Target, allow_fp4: bool) -> QuantizeFacts:
    """Reads a call's configuration and puts its facts together."""
    if call.config is None:
        parsed = Parsed(values={}, problems=(Problem(key="", cause="is missing"),), complete=False)
    else:
        parsed = parse_json(call.config, QuantizeMxConfig)
    return QuantizeFacts(
        call=call, parsed=parsed, config=parsed.build(QuantizeMxConfig), target=target, allow_fp4=allow_fp4
    )


def check_quantize(call: Call, *, target: Target, allow_fp4: bool) -> list[Diagnostic]:
    """Returns every violation of one call, then the warnings about it."""
    return [violation.at(call) for violation in _violations(call.signature, target, allow_fp4)]


@functools.lru_cache(maxsize=4096)
def _violations(call: Signature, target: Target, allow_fp4: bool) -> tuple[Violation, ...]:
    return judge(RULES, facts_of(call, target=target, allow_fp4=allow_fp4))


def config_problems(parsed: Parsed) -> str:
    """Says what is wrong with a configuration, key by key."""
    parts = [f"key '{shorten(p.key)}' {p.cause}" if p.key else p.cause for p in parsed.problems]
    return f"backend_config {shorten(parts, '; ')}"


def unknown_keys(parsed: Parsed) -> str:
    """Says which keys of a configuration are unknown."""
    return f"backend_config has unknown keys: {shorten([shorten(key) for key in parsed.unknown])}"


def _dim_cause(f: QuantizeFacts) -> str:
    rank = 0 if f.operand is None else f.operand.rank
    given = "missing, so it is 0," if "dim" not in f.parsed.values else f"{f.config.dim}"
    return f"dim is {given} and not one of the last two dimensions of an operand of rank {rank}"


def _data_shape_differs(f: QuantizeFacts) -> bool:
    expected = f.expected_dims(ELEMENTS_PER_CONTAINER)
    divisible = f.quantized_size is not None and f.quantized_size % ELEMENTS_PER_CONTAINER == 0
    return (
        bool(f.call.results)
        and expected is not None
        and divisible
        and f.call.results[0].rank == len(expected)
        and f.call.results[0].dims != expected
    )


def _scale_differs(f: QuantizeFacts) -> bool:
    if len(f.call.results) != 2:
        return False
    expected = f.expected_dims(BLOCK_SIZE)
    scale = f.call.results[1]
    return scale.element_type not in _SCALE_ELEMENT_TYPES or (expected is not None and scale.dims != expected)


def _expected(element_type: str, dims: tuple[int | None, ...] | None) -> str:
    return element_type if dims is None else str(ArrayShape(element_type, dims))


RULES: tuple[Rule[QuantizeFacts], ...] = (
    Rule(
        "NCC_EVRF036",
        lambda f: bool(f.parsed.problems),
        lambda f: config_problems(f.parsed),
        'write a JSON object such as {"block_size":32,"dim":1,"dtype":"float8_e4m3fn","scale_method":"EMAX"}',
    ),
    Rule(
        "NCC_EVRF037",
        lambda f: len(f.call.operands) != 1,
        lambda f: f"QuantizeMX has {len(f.call.operands)} operands",
        "give exactly one operand, the tensor to quantize",
    ),
    Rule(
        "NCC_EVRF038",
        lambda f: f.operand is not None and f.parsed.readable("dim") and f.axis is None,
        _dim_cause,
        "quantize along the last or the second-to-last dimension, or transpose first",
    ),
    Rule(
        "NCC_EVRF039",
        lambda f: f.parsed.readable("block_size") and f.config.block_size != BLOCK_SIZE,
        lambda f: f"block_size is {f.config.block_size}",
        "use a block size of 32, the only one of the MX formats",
    ),
    Rule(
        "NCC_EVRF040",
        lambda f: f.parsed.readable("scale_method") and f.config.scale_method != "EMAX",
        lambda f: f"scale_method is '{shorten(f.config.scale_method)}'",
        "use 'EMAX'; another scale rule travels as the frontend attribute mx_scale_rule",
    ),
    Rule(
        "NCC_EVRF041",
        lambda f: f.operand is not None and f.operand.element_type not in ("bf16", "f16"),
        lambda f: f"the operand's element type is {'' if f.operand is None else f.operand.element_type}",
        "convert the operand to bf16 or f16 before the call",
    ),
    Rule(
        "NCC_EVRF042",
        lambda f: f.parsed.readable("dtype") and f.config.dtype not in f.dtypes,
        lambda f: f"dtype is '{shorten(f.config.dtype)}'" if f.config.dtype else "dtype is missing",
        "use 'float8_e5m2' or 'float8_e4m3fn' ('float4_e2m1fn' only with --allow-fp4)",
    ),
    Rule(
        "NCC_EVRF042",
        lambda f: bool(f.call.results) and f.call.results[0].element_type != f.data_element_type,
        lambda f: f"result 0, the data, has element type {f.call.results[0].element_type}",
        "make it u32, four fp8 elements in a container (u16 for float4_e2m1fn)",
    ),
    Rule(
        "NCC_EVRF042",
        _data_shape_differs,
        lambda f: (
            f"result 0, the data, is {f.call.results[0]}, "
            f"not {_expected(f.data_element_type, f.expected_dims(ELEMENTS_PER_CONTAINER))}"
        ),
        "keep the operand's dimensions and divide the quantized one by 4",
    ),
    Rule(
        "NCC_EVRF042",
        _scale_differs,
        lambda f: f"result 1, the scale, is {f.call.results[1]}, not {_expected('u8', f.expected_dims(BLOCK_SIZE))}",
        "make it u8 (or f8e8m0fnu) with one scale for every 32 elements of the quantized dimension",
    ),
    Rule(
        "NCC_EVRF051",
        lambda f: f.target is not Target.TRN3,
        lambda f: f"MX quantize needs core_v4 and the target is {f.target} ({f.target.core})",
        "compile for trn3 or newer",
    ),
    Rule(
        "NCC_EVRF051",
        lambda f: f.target is not Target.TRN3 and f.config.dtype == "float8_e4m3fn",
        lambda f: f"float8_e4m3fn needs trn3 or newer and the target is {f.target}",
        "compile for trn3 or newer",
    ),
    Rule(
        "NCC_EVRF057",
        lambda f: len(f.call.results) != 2,
        lambda f: f"the result has {len(f.call.results)} parts",
        "make it a tuple of exactly two, data and scale",
    ),
    Rule(
        "NCC_EVRF058",
        lambda f: f.quantized_size is not None and f.quantized_size % ELEMENTS_PER_CONTAINER != 0,
        lambda f: f"the quantized dimension has size {f.quantized_size}",
        "pad it to a multiple of 4, the number of elements in a container",
    ),
    Rule(
        "MX004",
        lambda f: not all(s.is_static for s in (*f.call.operands, *f.call.results)),
        lambda f: f"the call has a dynamic dimension: {f.call.shapes}",
        "give every dimension a static size",
    ),
    Rule(
        "MX006",
        lambda f: bool(f.call.scale_rule_problem),
        lambda f: f.call.scale_rule_problem,
        "name one scale rule, as a string, or leave it out for EMAX",
    ),
    Rule(
        "MX006",
        lambda f: f.call.scale_rule is not None and f.call.scale_rule not in SCALE_RULES,
        lambda f: f"mx_scale_rule is '{shorten(f.call.scale_rule or '')}'",
        f"use one of {', '.join(SCALE_RULES)}, or leave it out for EMAX",
    ),
    Rule(
        "MX003",
        lambda f: bool(f.parsed.unknown),
        lambda f: unknown_keys(f.parsed),
        "remove them; no pass reads them",
        Severity.WARNING,
    ),
)

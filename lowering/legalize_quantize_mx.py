"""Pass `legalize-quantize-mx`: `QuantizeMX` calls become the hardware compiler's own `QuantizeMX_*` calls.

    %d, %s = custom-call(%x), custom_call_target="QuantizeMX", backend_config={"dim":1,"dtype":"float8_e5m2",...}

becomes, for x: bf16[4,64],

    %m = (s64[2], s64[], s64[], s64[]) constant(({4, 64}, 1, 32, 0))
    %d, %s = custom-call(%m, %x), custom_call_target="QuantizeMX_bf16_e5m2"

The metadata holds the operand's dimensions, the quantized dimension (non-negative), the block size and a zero. The
result is the same values: only who computes them changes. Every computation is covered, also called functions, loop
bodies and branches (this project's decision: an export for several platforms puts the call inside a branch).
"""

from dataclasses import dataclass, field
from typing import ClassVar

from lowering.calls import QUANTIZE_TARGET, Call, Spelling, match_ahead, take_matches
from lowering.diagnostics import Diagnostic
from lowering.module import Module
from lowering.options import check_options
from lowering.quantize_rules import FP4_DTYPE, QuantizeFacts, check_quantize, facts_of
from lowering.rewriting import Legalized, decomposition_of, legalize, remove_decompositions
from lowering.rules import Target


@dataclass(frozen=True, kw_only=True)
class LegalizeQuantizeMx:
    """Tags every valid `QuantizeMX` call with its element formats and hands it its shape as metadata.

    Attributes:
        target: Hardware generation to validate for; "trn2" or "trn3" will do.
        allow_fp4: Accept `float4_e2m1fn` with 16-bit containers, which the published contract refuses.
        validate: Check the contract first. Without it a malformed call is tagged as the original pass would: anything
            but bf16 counts as f16, anything but float8_e5m2 as e4m3fn, and what cannot be read has its default.

    Raises:
        OptionError: A ValueError, with code MX017, when an option has a value that it cannot have.
    """

    name: ClassVar[str] = "legalize-quantize-mx"
    summary: ClassVar[str] = "Turn QuantizeMX calls into QuantizeMX_{bf16,f16}_{e5m2,e4m3fn} calls with shape metadata."
    keeps_calls: ClassVar[bool] = True

    target: Target = field(default=Target.TRN3, metadata={"doc": "Hardware generation to validate for."})
    allow_fp4: bool = field(default=False, metadata={"doc": "Accept float4_e2m1fn with 16-bit containers."})
    validate: bool = field(
        default=True, metadata={"doc": "Skip the check of the contract; a malformed call is then tagged silently."}
    )

    def __post_init__(self) -> None:
        check_options(self)

    def diagnose(self, module: Module) -> list[Diagnostic]:
        """Returns every violation of every call."""
        calls = match_ahead(module, QUANTIZE_TARGET, self.name)
        return [d for call in calls for d in self._check(call)]

    def rewrite(self, module: Module) -> int:
        """Replaces every call; returns how many."""
        calls = take_matches(module, QUANTIZE_TARGET, self.name)
        composites = {decomposition_of(call.op) for call in calls if call.spelling is Spelling.COMPOSITE}
        count = legalize(module, calls, self._legalized)
        remove_decompositions(module, composites)
        return count

    def legalized_target(self, call: Call) -> str:
        """Returns the target that a call gets: `QuantizeMX_bf16_e5m2` and so on."""
        dtype = self._facts(call).config.dtype
        element = "e5m2" if dtype == "float8_e5m2" else "e4m3fn"
        if self.allow_fp4 and dtype == FP4_DTYPE:
            element = "e2m1fn"
        source = "bf16" if call.operands[0].element_type == "bf16" else "f16"
        return f"{QUANTIZE_TARGET}_{source}_{element}"

    def _legalized(self, call: Call) -> Legalized:
        config, operand = self._facts(call).config, call.operands[0]
        dim = config.dim + operand.rank if config.dim < 0 else config.dim
        return Legalized(
            target=self.legalized_target(call),
            metadata=(operand.static_dims, dim, config.block_size, 0),
            metadata_first=True,
            backend_config="",
            scale_rule=call.scale_rule,
        )

    def _check(self, call: Call) -> list[Diagnostic]:
        found = check_quantize(call, target=self.target, allow_fp4=self.allow_fp4)
        if self.validate:
            return found
        # There are no metadata to write for what has no operand, or dimensions that nobody knows.
        return [d for d in found if d.code == "MX004"] if call.operands else [_no_operand(call)]

    def _facts(self, call: Call) -> QuantizeFacts:
        return facts_of(call.signature, target=self.target, allow_fp4=self.allow_fp4)


def _no_operand(call: Call) -> Diagnostic:
    return Diagnostic(
        code="NCC_EVRF037",
        cause="QuantizeMX has no operand",
        resolution="give exactly one operand; without one there is nothing to tag, validated or not",
        instruction=call.name,
        shapes=call.shapes,
        location=call.location,
    )

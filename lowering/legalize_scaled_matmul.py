"""Pass `legalize-scaled-matmul`: `__op$block_scaled_dot` calls become `ScaledMatmul_*` calls.

    %o = custom-call(%lhs, %rhs, %lhs_scale, %rhs_scale), custom_call_target="__op$block_scaled_dot"

becomes, for a float8_e4m3fn configuration and an f32 result,

    %m = (s64[0], s64[0], s64[1], s64[1]) constant(({}, {}, {1}, {1}))
    %o = custom-call(%lhs, %rhs, %lhs_scale, %rhs_scale, %m), custom_call_target="ScaledMatmul_e4m3fn_e4m3fn_f32"

The metadata holds the four dimension lists in the order lhs batch, rhs batch, lhs contracting, rhs contracting (the
order is this project's decision); a list that the configuration lacks is empty. The configuration is kept.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from lowering.calls import SCALED_DOT_TARGET, Call, match_ahead, take_matches
from lowering.diagnostics import Diagnostic
from lowering.module import Module
from lowering.options import check_options
from lowering.rewriting import Legalized, legalize
from lowering.scaled_dot_rules import Side, check_scaled_dot, facts_of


@dataclass(frozen=True, kw_only=True)
class LegalizeScaledMatmul:
    """Tags every valid `__op$block_scaled_dot` call with its formats and hands it its dimension lists as metadata.

    Attributes:
        validate: Check the contract first.

    Raises:
        OptionError: A ValueError, with code MX017, when an option has a value that it cannot have.
    """

    name: ClassVar[str] = "legalize-scaled-matmul"
    summary: ClassVar[str] = "Turn __op$block_scaled_dot calls into ScaledMatmul_* calls with dimension metadata."
    keeps_calls: ClassVar[bool] = True

    validate: bool = field(
        default=True, metadata={"doc": "Skip the check of the contract; a malformed call is then tagged silently."}
    )

    def __post_init__(self) -> None:
        check_options(self)

    def diagnose(self, module: Module) -> list[Diagnostic]:
        """Returns every violation of every call."""
        calls = match_ahead(module, SCALED_DOT_TARGET, self.name)
        return [d for call in calls for d in check_scaled_dot(call)] if self.validate else []

    def rewrite(self, module: Module) -> int:
        """Replaces every call; returns how many."""
        calls = take_matches(module, SCALED_DOT_TARGET, self.name)
        return legalize(module, calls, _legalized)


def legalized_target(call: Call) -> str:
    """Returns the target that a call gets: `ScaledMatmul_e5m2_e5m2_bf16` and so on."""
    element = "e4m3fn" if facts_of(call.signature).config.element_dtype == "float8_e4m3fn" else "e5m2"
    output = "bf16" if call.results and call.results[0].element_type == "bf16" else "f32"
    return f"ScaledMatmul_{element}_{element}_{output}"


def _legalized(call: Call) -> Legalized:
    facts = facts_of(call.signature)
    return Legalized(
        target=legalized_target(call),
        metadata=(
            facts.config.lhs_batch_dimensions,
            facts.config.rhs_batch_dimensions,
            _counted_from_the_start(facts.lhs),
            _counted_from_the_start(facts.rhs),
        ),
        metadata_first=False,
        backend_config=call.signature.config or "",
    )


def _counted_from_the_start(side: Side) -> tuple[int, ...]:
    return tuple(d + side.rank if d < 0 else d for d in side.contracting)

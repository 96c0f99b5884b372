"""Pass `lower-to-bir`: checks that every legalized quantize call can be lowered; `--emit=bir-json` writes the program.

The module itself is left as it is: a BIR program is another form of its calls, like HLO text is, and not IR that a
later pass could take. So the pass is the last one, and its result is written by `emit`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lowering.bir.errors import BirError
from lowering.bir.from_hlo import NOT_LOWERABLE, legalized_calls
from lowering.bir.geometry import CORE_V4
from lowering.bir.json_io import to_json
from lowering.bir.lower import LowerOptions, lower_calls
from lowering.bir.program import Module as BirModule
from lowering.bir.tiling import MAX_COLUMNS
from lowering.bir.verify import check
from lowering.calls import QUANTIZE_TARGET, targets
from lowering.diagnostics import Diagnostic, Severity, error
from lowering.module import Module
from lowering.options import check_options
from lowering.rules import Target

__all__ = ["BIR_JSON", "LowerToBir"]

NOTHING_TO_LOWER = "MX018"
"""Code of a module without calls to lower."""

BIR_JSON = "bir-json"
"""The `--emit` form of a BIR program."""


@dataclass(frozen=True, kw_only=True)
class LowerToBir:
    """Lowers legalized quantize calls to a BIR program, one function a call.

    Attributes:
        target: Hardware generation to lower for; "trn3" will do.
        allow_fp4: Accept fp4 output.
        sbuf_budget: Bytes of each SBUF partition that may be used.
        tile_columns: Columns of the flattened array in one tile; 0 for as many as fit.
        pack_scales: Let up to four tiles share a scale buffer.

    Raises:
        OptionError: A ValueError, with code MX017, when an option has a value that it cannot have.
    """

    name: ClassVar[str] = "lower-to-bir"
    summary: ClassVar[str] = f"Lower legalized quantize calls to a BIR program; the last pass, with --emit={BIR_JSON}."

    target: Target = field(default=Target.TRN3, metadata={"doc": "Hardware generation to validate for."})
    allow_fp4: bool = field(default=False, metadata={"doc": "Accept float4_e2m1fn with 16-bit containers."})
    sbuf_budget: int = field(
        default=CORE_V4.sbuf_usable,
        metadata={"doc": "Bytes of each SBUF partition that the program may use.", "range": (1, CORE_V4.sbuf_usable)},
    )
    tile_columns: int = field(
        default=0,
        metadata={"doc": "Columns of one tile; 0 for as many as fit the budget.", "range": (0, MAX_COLUMNS)},
    )
    pack_scales: bool = field(
        default=True, metadata={"doc": "Give every tile a scale buffer of its own, where up to four could share one."}
    )

    def __post_init__(self) -> None:
        check_options(self)

    def diagnose(self, module: Module) -> list[Diagnostic]:
        """Returns a warning when the module has no quantize call; calls are validated by the passes before this one."""
        if any(target.partition("_")[0] == QUANTIZE_TARGET for target in targets(module)):
            return []
        return [
            Diagnostic(
                severity=Severity.WARNING,
                code=NOTHING_TO_LOWER,
                cause=f"{module.name} has no {QUANTIZE_TARGET} call, so the program is empty",
                resolution="give a module with such calls; mx-opt explain shows what almost is one",
            )
        ]

    def rewrite(self, module: Module) -> int:
        """Checks that the module can be lowered and changes nothing. Raises LoweringError with code MX016."""
        self.lower(module)
        return 0

    def lower(self, module: Module) -> BirModule:
        """Lowers the legalized quantize calls of a module.

        Args:
            module: A module that `LegalizeQuantizeMx` has rewritten; it is not changed.

        Returns:
            The verified program, with a function for each call in post order.

        Raises:
            LoweringError: With code MX016 when a call cannot be lowered with these options.
        """
        options = LowerOptions(
            sbuf_budget=self.sbuf_budget,
            columns_per_tile=self.tile_columns or None,
            pack_scales=self.pack_scales,
            target=str(self.target),
        )
        calls = legalized_calls(module)
        try:
            program = lower_calls(calls, options)
            check(program, allow_fp4=self.allow_fp4)
        except BirError as e:
            resolution = "change the option (sbuf-budget, tile-columns, target) or the call it names"
            raise error(NOT_LOWERABLE, f"{module.name}: {e}", resolution) from e
        return program

    def emit(self, module: Module) -> bytes:
        """Returns the program as BIR JSON. Raises LoweringError with code MX016."""
        return to_json(self.lower(module)).encode()

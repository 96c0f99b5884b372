"""From StableHLO and HLO modules with MX calls to what the hardware compiler takes.

    module = lowering.read_module(Path("model.hlo").read_bytes(), "model.hlo")
    lowering.run_passes(module, [lowering.LegalizeQuantizeMx(), lowering.LegalizeScaledMatmul()])
    Path("legalized.hlo").write_bytes(lowering.write_module(module, lowering.Format.HLO_TEXT))

What is wrong with a module comes as `LoweringError`, whose `diagnostics` are data. The command line is `mx-opt`.
`lowering.bir` goes on from a legalized module to instruction words.
"""

from lowering.bir.lower_to_bir import LowerToBir as LowerToBir
from lowering.config import QuantizeMxConfig as QuantizeMxConfig
from lowering.config import ScaledDotConfig as ScaledDotConfig
from lowering.config import canonical_json as canonical_json
from lowering.diagnostics import Diagnostic as Diagnostic
from lowering.diagnostics import LoweringError as LoweringError
from lowering.diagnostics import Severity as Severity
from lowering.diagnostics import SourceLocation as SourceLocation
from lowering.expansion import expand_calls as expand_calls
from lowering.explaining import explain_module as explain_module
from lowering.in_xla import Hook as Hook
from lowering.in_xla import enable_in_xla as enable_in_xla
from lowering.in_xla import start_in_xla as start_in_xla
from lowering.in_xla import stop_in_xla as stop_in_xla
from lowering.inspection import Row as Row
from lowering.inspection import inspect_module as inspect_module
from lowering.legalize_quantize_mx import LegalizeQuantizeMx as LegalizeQuantizeMx
from lowering.legalize_scaled_matmul import LegalizeScaledMatmul as LegalizeScaledMatmul
from lowering.module import Format as Format
from lowering.module import Module as Module
from lowering.options import OptionError as OptionError
from lowering.passes import Pass as Pass
from lowering.passes import PassReport as PassReport
from lowering.passes import run_passes as run_passes
from lowering.reading import InputForm as InputForm
from lowering.reading import read_module as read_module
from lowering.reading import recognise as recognise
from lowering.registry import PASSES as PASSES
from lowering.rules import Target as Target
from lowering.running import execute as execute
from lowering.running import load_function as load_function
from lowering.writing import print_hlo_proto as print_hlo_proto
from lowering.writing import write_module as write_module

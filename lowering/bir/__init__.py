"""From a legalized MX quantize call to the hardware instruction: BIR programs, their checks, their run, their bytes.

    module = lowering.read_module(text)
    lowering.run_passes(module, [lowering.LegalizeQuantizeMx()])
    program = bir.lower_calls(bir.legalized_calls(module))
    results = bir.simulate(program, {"x": array}, function="sg0000")

The legalized calls of a module (`legalized_calls`) become BIR functions (`lower_calls`; `LowerToBir` does both as a
pass), which are written and read as JSON (`to_json`, `from_json`), checked against the compiler's rules (`verify`), run
on a laptop (`simulate`), drawn (`draw_function`) and encoded as 64-byte instruction words (`encode_module`,
`disassemble`).
"""

from lowering.bir.disasm import disassemble as disassemble
from lowering.bir.drawing import draw_function as draw_function
from lowering.bir.dtypes import Dtype as Dtype
from lowering.bir.dtypes import dtype_named as dtype_named
from lowering.bir.errors import BirError as BirError
from lowering.bir.errors import BirFormatError as BirFormatError
from lowering.bir.errors import BirLoweringError as BirLoweringError
from lowering.bir.errors import EncodeError as EncodeError
from lowering.bir.errors import SimulationError as SimulationError
from lowering.bir.errors import VerificationError as VerificationError
from lowering.bir.from_hlo import legalized_calls as legalized_calls
from lowering.bir.json_io import from_json as from_json
from lowering.bir.json_io import to_json as to_json
from lowering.bir.lower import LegalizedCall as LegalizedCall
from lowering.bir.lower import LowerOptions as LowerOptions
from lowering.bir.lower import lower_calls as lower_calls
from lowering.bir.lower_to_bir import LowerToBir as LowerToBir
from lowering.bir.program import AccessPattern as AccessPattern
from lowering.bir.program import Allocation as Allocation
from lowering.bir.program import Block as Block
from lowering.bir.program import Debug as Debug
from lowering.bir.program import EdgeKind as EdgeKind
from lowering.bir.program import Function as Function
from lowering.bir.program import Immediate as Immediate
from lowering.bir.program import Instruction as Instruction
from lowering.bir.program import MemoryLocation as MemoryLocation
from lowering.bir.program import Module as Module
from lowering.bir.program import OpaqueOperand as OpaqueOperand
from lowering.bir.program import Operand as Operand
from lowering.bir.rules import Violation as Violation
from lowering.bir.simulator import simulate as simulate
from lowering.bir.verify import check as check
from lowering.bir.verify import verify as verify
from lowering.bir.wire import EncodedProgram as EncodedProgram
from lowering.bir.wire import QuantizeMxWord as QuantizeMxWord
from lowering.bir.wire import decode as decode
from lowering.bir.wire import encode as encode
from lowering.bir.wire import encode_module as encode_module

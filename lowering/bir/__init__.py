"""From a legalized MX quantize call to the hardware instruction: BIR programs, their checks, their run, their bytes.

A legalized call becomes a BIR function (`lower_calls`), which is written and read as JSON (`to_json`, `from_json`),
checked against the compiler's rules (`verify`), run on a laptop (`simulate`) and encoded as 64-byte instruction words
(`encode_module`, `disassemble`).
"""

from lowering.bir.disasm import disassemble as disassemble
from lowering.bir.errors import BirError as BirError
from lowering.bir.errors import BirFormatError as BirFormatError
from lowering.bir.errors import BirLoweringError as BirLoweringError
from lowering.bir.errors import EncodeError as EncodeError
from lowering.bir.errors import SimulationError as SimulationError
from lowering.bir.errors import VerificationError as VerificationError
from lowering.bir.json_io import from_json as from_json
from lowering.bir.json_io import to_json as to_json
from lowering.bir.lower import LegalizedCall as LegalizedCall
from lowering.bir.lower import LowerOptions as LowerOptions
from lowering.bir.lower import lower_calls as lower_calls
from lowering.bir.program import Function as Function
from lowering.bir.program import Instruction as Instruction
from lowering.bir.program import Module as Module
from lowering.bir.rules import Violation as Violation
from lowering.bir.simulator import simulate as simulate
from lowering.bir.verify import check as check
from lowering.bir.verify import verify as verify
from lowering.bir.wire import decode as decode
from lowering.bir.wire import encode as encode
from lowering.bir.wire import encode_module as encode_module

"""The verifier: every rule on every instruction, all violations reported.

Structural checks come first, then the table of the instruction's opcode. An instruction whose operands are malformed
has been reported by then and is not measured further; every other instruction still is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowering.bir.access import locations_of
from lowering.bir.errors import VerificationError
from lowering.bir.matmult_mx_rules import MATMULT_MX_ROLES, MATMULT_MX_RULES
from lowering.bir.program import AccessPattern, Instruction, MemoryLocation, Module
from lowering.bir.quantize_mx_rules import QUANTIZE_MX_ROLES, QUANTIZE_MX_RULES
from lowering.bir.rules import OperandView, Rule, Scene, Violation, apply_rules
from lowering.bir.structure import check_structure

__all__ = ["RULES", "arch_level", "check", "verify"]

Roles = tuple[tuple[str, ...], tuple[str, ...]]

RULES: dict[str, tuple[Roles, Sequence[Rule]]] = {
    "QuantizeMx": (QUANTIZE_MX_ROLES, QUANTIZE_MX_RULES),
    "MatmultMx": (MATMULT_MX_ROLES, MATMULT_MX_RULES),
}
"""Rule table and operand names of each opcode that has one."""


def verify(module: Module, *, allow_fp4: bool = False) -> list[Violation]:
    """Checks a program against the compiler's rules for each instruction, and against this package's for the whole.

    Args:
        module: The program.
        allow_fp4: Accept fp4 output, which the hardware definition refuses and the simulator computes.

    Returns:
        Every violation, in program order; an empty list when there is none.
    """
    violations: list[Violation] = []
    level = arch_level(module.arch)
    if level is None:
        violations.append(Violation("arch", "module", "arch", module.arch, 'a name like "core_v4"'))
    for function in module.functions:
        violations += check_structure(function)
        locations = locations_of(function)
        for instruction in function.instructions():
            if instruction.opcode in RULES:
                roles, rules = RULES[instruction.opcode]
                operands = _views(instruction, roles, locations)
                if operands is not None and level is not None:
                    violations += apply_rules(rules, Scene(level, instruction, operands, allow_fp4))
    return violations


def check(module: Module, *, allow_fp4: bool = False) -> None:
    """Raises when a program breaks a rule; `verify` returns the violations instead.

    Args:
        module: The program.
        allow_fp4: Accept fp4 output, which the hardware definition refuses and the simulator computes.

    Raises:
        VerificationError: With one line per violation.
    """
    violations = verify(module, allow_fp4=allow_fp4)
    if violations:
        count = f"{len(violations)} violation{'s' if len(violations) > 1 else ''}"
        raise VerificationError("\n".join([f"the program breaks the rules: {count}", *map(str, violations)]))


def arch_level(arch: str) -> int | None:
    """The compiler's level of an architecture name: 40 for "core_v4"; None when it is no such name."""
    number = arch.removeprefix("core_v")
    return int(number) * 10 if number != arch and number.isascii() and number.isdigit() else None


def _views(
    instruction: Instruction, roles: Roles, locations: Mapping[str, MemoryLocation]
) -> dict[str, OperandView] | None:
    """Operands by role, or None when the structural checks have already found them malformed."""
    views: dict[str, OperandView] = {}
    for names, operands in zip(roles, (instruction.ins, instruction.outs), strict=True):
        if len(names) != len(operands):
            return None
        for name, operand in zip(names, operands, strict=True):
            if not isinstance(operand, AccessPattern) or operand.memref not in locations or not operand.ap:
                return None
            views[name] = OperandView(operand, locations[operand.memref])
    return views

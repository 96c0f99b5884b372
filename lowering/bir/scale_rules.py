"""Names of scale rules: programs carry names, and callers may give `jax_mx`'s own rules instead."""

from __future__ import annotations

import jax_mx
from lowering.bir.errors import BirError
from lowering.bir.numerics import SCALE_RULES

__all__ = ["NAMED_RULES", "rule_name"]

NAMED_RULES: dict[str, jax_mx.ScaleRule] = {
    rule.name: rule for rule in (jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR)
}
"""The rules of `jax_mx` that have a name everywhere."""


def rule_name(rule: str | jax_mx.ScaleRule, wrong: type[BirError]) -> str:
    """The name of a scale rule.

    Args:
        rule: The name, or one of the four rules of `jax_mx`.
        wrong: The error to raise.

    Raises:
        BirError: Of the class `wrong`, when `rule` is neither; a rule of the caller's own has no place in a program.
    """
    name = rule.name if isinstance(rule, jax_mx.ScaleRule) else rule
    is_known = isinstance(name, str) and name in SCALE_RULES
    if not is_known or (isinstance(rule, jax_mx.ScaleRule) and rule != NAMED_RULES[name]):
        own = ", with other numbers than the rule of that name" if is_known else ""
        raise wrong(f"the scale rule is {rule}{own}; wanted {', '.join(SCALE_RULES)} or jax_mx's rule of that name")
    return name

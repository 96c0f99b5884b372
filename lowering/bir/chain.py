"""The whole chain of one module, stage by stage: from its text to instruction words, compared with the JAX primitive.

    parse -> validate -> legalize -> execute -> lower -> verify -> simulate -> encode

`execute` runs the module before and after legalization. `simulate` runs every lowered call on adversarial bits and
compares data and scale byte for byte with `jax_mx.quantize_mx`. A stage that fails ends the chain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import jax_mx
from lowering.bir.adversarial import adversarial_bits
from lowering.bir.errors import BirError
from lowering.bir.from_hlo import legalized_calls
from lowering.bir.lower import LegalizedCall, lower_calls
from lowering.bir.program import Module as BirModule
from lowering.bir.scale_rules import NAMED_RULES, rule_name
from lowering.bir.simulator import simulate
from lowering.bir.verify import verify
from lowering.bir.wire import WORD_BYTES, decode, encode, encode_module
from lowering.diagnostics import Diagnostic, LoweringError, Severity
from lowering.legalize_quantize_mx import LegalizeQuantizeMx
from lowering.legalize_scaled_matmul import LegalizeScaledMatmul
from lowering.module import Module
from lowering.passes import Pass, run_passes
from lowering.reading import read_module
from lowering.validation import validate_module

__all__ = ["STAGES", "Stage", "run_chain"]

STAGES = ("parse", "validate", "legalize", "execute", "lower", "verify", "simulate", "encode")

_NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclass(frozen=True)
class Stage:
    """What became of one stage.

    Attributes:
        name: One of `STAGES`.
        ok: Whether it passed.
        summary: A few words for the table.
        problems: What is wrong, one line each, when it did not pass.
    """

    name: str
    ok: bool
    summary: str
    problems: tuple[str, ...] = ()


def run_chain(
    data: bytes, name: str, *, seed: int, allow_fp4: bool, after_each: Callable[[Stage], None] | None = None
) -> list[Stage]:
    """The stages of a module, up to the first that fails.

    Args:
        data: The module, in any form that can be read.
        name: Its name for messages.
        seed: Equal seeds give equal inputs.
        allow_fp4: Accept float4_e2m1fn.
        after_each: Called with each stage as soon as it is done.
    """
    stages: list[Stage] = []
    for stage in _stages(data, name, seed, allow_fp4):
        stages.append(stage)
        if after_each is not None:
            after_each(stage)
        if not stage.ok:
            break
    return stages


def _stages(data: bytes, name: str, seed: int, allow_fp4: bool) -> Iterator[Stage]:
    try:
        module = read_module(data, name)
    except LoweringError as e:
        yield _failed("parse", e.diagnostics)
        return
    yield Stage("parse", True, "ok")
    passes: list[Pass] = [LegalizeQuantizeMx(allow_fp4=allow_fp4), LegalizeScaledMatmul()]
    found = _diagnostics(module, passes)
    errors = [d for d in found if d.severity is Severity.ERROR]
    warnings = sum(d.severity is Severity.WARNING for d in found)
    yield _failed("validate", errors) if errors else Stage("validate", True, _count(warnings, "warning", none="ok"))
    try:
        _, reports = run_passes(module, passes)
        calls = legalized_calls(module)
    except LoweringError as e:
        yield _failed("legalize", e.diagnostics)
        return
    yield Stage("legalize", True, _count(sum(r.rewritten for r in reports), "call"))
    outcome = validate_module(data, name, seed=seed, allow_fp4=allow_fp4)
    problems = () if outcome.ok else (outcome.verdict,)
    yield Stage("execute", outcome.ok, _count(outcome.results, "result") if outcome.ok else "differs", problems)
    # Calls that differ in names alone have one program; a module's rule is one, so each has a module of its own.
    kinds = list(dict.fromkeys(dataclasses.replace(c, operand="x", data="d", scale="s", source=None) for c in calls))
    yield from _program_stages(kinds, seed, allow_fp4)


def _program_stages(calls: list[LegalizedCall], seed: int, allow_fp4: bool) -> Iterator[Stage]:
    try:
        programs = [lower_calls([call]) for call in calls]
    except BirError as e:
        yield Stage("lower", False, "refused", (str(e),))
        return
    yield Stage("lower", True, _count(len(programs), "program"))
    violations = [str(v) for program in programs for v in verify(program, allow_fp4=allow_fp4)]
    yield Stage("verify", not violations, _count(len(violations), "violation", none="ok"), tuple(violations))
    try:
        problems = [
            problem
            for call, program in zip(calls, programs, strict=True)
            for problem in _differences(call, program, seed, allow_fp4)
        ]
    except BirError as e:
        yield Stage("simulate", False, "refused", (str(e),))
        return
    equal = "equal" if calls else "no calls"
    yield Stage("simulate", not problems, "differs" if problems else equal, tuple(problems))
    try:
        words = [encode_module(program, program.functions[0], allow_fp4=allow_fp4).words for program in programs]
        problems = [problem for chunk in words for problem in _misread(chunk)]
    except BirError as e:
        yield Stage("encode", False, "refused", (str(e),))
        return
    count = sum(len(chunk) for chunk in words) // WORD_BYTES
    yield Stage("encode", not problems, _count(count, "word"), tuple(problems))


def _diagnostics(module: Module, passes: list[Pass]) -> list[Diagnostic]:
    with module.context:
        return [d for p in passes for d in p.diagnose(module)]


def _differences(call: LegalizedCall, program: BirModule, seed: int, allow_fp4: bool) -> Iterator[str]:
    """How the simulated bytes of a call differ from the JAX primitive's."""
    bits = adversarial_bits(call.shape, call.element_type, seed)
    found = simulate(program, {call.operand: bits}, allow_fp4=allow_fp4)
    value = bits.view(_NUMPY[call.element_type])
    results = jax_mx.quantize_mx(
        value, call.dtype, axis=call.axis, rule=NAMED_RULES[rule_name(call.scale_rule, BirError)]
    )
    what = f"{call.element_type}{list(call.shape)} to {call.dtype}, axis {call.axis}"
    for part, name, want in zip(("data", "scale"), (call.data, call.scale), results, strict=True):
        difference = _difference(found[name], np.asarray(want))
        if difference:
            yield f"{what}: {part} {difference}"


def _difference(found: NDArray[np.unsignedinteger], want: NDArray[np.generic]) -> str:
    """How two arrays differ, empty when they do not."""
    if found.shape != want.shape or found.dtype.itemsize != want.dtype.itemsize:
        return f"is {found.dtype}{list(found.shape)}, wanted {want.dtype}{list(want.shape)}"
    wanted = want.view(found.dtype)
    places = np.argwhere(found != wanted)
    if not len(places):
        return ""
    first = tuple(int(i) for i in places[0])
    return f"differs in {len(places)} of {found.size}; at {first} {found[first]:#x}, wanted {wanted[first]:#x}"


def _misread(words: bytes) -> Iterator[str]:
    """Words that do not come back from their own fields."""
    for start in range(0, len(words), WORD_BYTES):
        word = words[start : start + WORD_BYTES]
        if encode(decode(word)) != word:
            yield f"the word {word.hex()} reads back as {encode(decode(word)).hex()}"


def _failed(name: str, diagnostics: list[Diagnostic] | tuple[Diagnostic, ...]) -> Stage:
    errors = [d.headline for d in diagnostics if d.severity is Severity.ERROR]
    return Stage(name, False, _count(len(errors), "error"), tuple(errors))


def _count(count: int, what: str, none: str | None = None) -> str:
    if count == 0 and none is not None:
        return none
    return f"{count} {what}{'' if count == 1 else 's'}"

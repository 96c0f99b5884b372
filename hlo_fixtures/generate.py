"""Writes the fixtures: modules with MX calls made from the JAX programs of `programs.py`, and what they become.

    python hlo_fixtures/generate.py

`valid` and `spellings`: `NAME.hlo` or `NAME.mlir` holds a module as JAX lowers it, headed by the command that
legalizes it and by FileCheck lines for the outcome; `NAME.legalized.hlo` (or `.mlir`) is that outcome.
`invalid`: one file for each code, whose modules say in comments which diagnostics they must give. Two runs
with the same jax write the same bytes: source paths are relative to the repository, and only the innermost user frame
is recorded. `VERSIONS` names the jax that wrote them.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import jax

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT.parent))

from hlo_fixtures import large_model  # noqa: E402
from hlo_fixtures.invalid import INVALID, OPTIONS, Invalid  # noqa: E402
from hlo_fixtures.programs import PROGRAMS, Program  # noqa: E402
from hlo_fixtures.spellings import MHLO_CHECKS, MHLO_DICTIONARY, SPELLINGS  # noqa: E402  after the path is set, so that the script runs anywhere
from lowering import (  # noqa: E402
    Format,
    LegalizeQuantizeMx,
    LegalizeScaledMatmul,
    print_hlo_proto,
    read_module,
    run_passes,
    write_module,
)

PASSES = "legalize-quantize-mx,legalize-scaled-matmul"


@contextlib.contextmanager
def reproducible_locations() -> Iterator[None]:
    """Makes source locations independent of where the repository lies and of who calls."""
    settings = {
        "jax_hlo_source_file_canonicalization_regex": re.escape(f"{ROOT.parent}/"),
        "jax_traceback_in_locations_limit": 1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def lower(program: Program) -> str:
    """Returns a program's module as text, as JAX lowers it for the program's platforms."""
    with reproducible_locations():
        lowered = jax.jit(program.function).trace(*program.arguments).lower(lowering_platforms=program.platforms)
        if program.form == "hlo":
            return print_hlo_proto(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
        return lowered.as_text(debug_info=True)


def suffix(program: Program) -> str:
    """Returns the ending of a program's files."""
    return ".hlo" if program.form == "hlo" else ".mlir"


def header(program: Program) -> str:
    """Returns the comment lines that head a fixture: what it is, the command, the checks."""
    command = f"// RUN: mx-opt %s --passes={PASSES} --emit={program.form} {program.options}".rstrip()
    about = f"// {(program.function.__doc__ or '').splitlines()[0]}"
    return "\n".join([about, command, *(f"// {check}" for check in program.checks)]) + "\n\n"


def legalize(text: str, program: Program) -> bytes:
    """Returns a module after both passes, in the program's form."""
    module = read_module(text, program.name)
    run_passes(module, [LegalizeQuantizeMx(allow_fp4="--allow-fp4" in program.options), LegalizeScaledMatmul()])
    return write_module(module, Format(program.form))


LARGE = Program(
    name="large_transformer",
    function=large_model.large_transformer,
    arguments=large_model.arguments(),
    form="hlo",
    checks=(
        'CHECK-COUNT-200: custom_call_target="QuantizeMX_bf16_e4m3fn"',
        'CHECK-NOT: custom_call_target="QuantizeMX"',
        'CHECK-NOT: custom_call_target="__op$block_scaled_dot"',
    ),
)
"""The large module; its legalized form is not kept, its calls are counted."""


def invalid_module(case: Invalid) -> str:
    """Returns a module with an invalid call, headed by the diagnostics it must give."""
    with reproducible_locations():
        lowered = jax.jit(case.function).trace(*case.operands).lower(lowering_platforms=("neuron",))
        text = lowered.as_text(debug_info=True)
    return "".join(f"// expected-error {{{{{text}}}}}\n" for text in case.expected) + text


def invalid_file(name: str) -> str:
    """Returns all modules of one invalid fixture, with the command that checks their diagnostics."""
    command = f"// RUN: mx-opt %s --passes={PASSES} --split-input-file --verify-diagnostics {OPTIONS.get(name, '')}"
    return f"{command.rstrip()}\n\n" + "\n// -----\n\n".join(map(invalid_module, INVALID[name]))


def files() -> dict[Path, bytes]:
    """Returns every file to write, by path."""
    made = {ROOT / "VERSIONS": f"{versions()}\n".encode()}
    for program in (*PROGRAMS, *SPELLINGS):
        text = header(program) + lower(program)
        made[ROOT / program.directory / f"{program.name}{suffix(program)}"] = text.encode()
        made[ROOT / program.directory / f"{program.name}.legalized{suffix(program)}"] = legalize(text, program)
    made[ROOT / "spellings" / "mhlo_dictionary.mlir"] = mhlo_dictionary().encode()
    made[ROOT / "valid" / f"{LARGE.name}{suffix(LARGE)}"] = (header(LARGE) + lower(LARGE)).encode()
    for name in INVALID:
        made[ROOT / "invalid" / f"{name}.mlir"] = invalid_file(name).encode()
    return made


def mhlo_dictionary() -> str:
    """Returns the fixture of the spelling that jax no longer makes."""
    command = f"// RUN: mx-opt %s --passes={PASSES} --emit=stablehlo"
    return "\n".join([command, *(f"// {check}" for check in MHLO_CHECKS), "", MHLO_DICTIONARY])


def versions() -> str:
    """Returns the versions that decide what jax lowers to."""
    return f"jax {jax.__version__}, Python {sys.version_info[0]}.{sys.version_info[1]}"


def main() -> None:
    """Writes all files and says which."""
    for path, content in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        print(path.relative_to(ROOT.parent))


if __name__ == "__main__":
    main()

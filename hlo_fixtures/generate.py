"""Writes the fixtures: modules with MX calls made from the JAX programs of `programs.py`, and what they become.

    python hlo_fixtures/generate.py

For each program, `valid/NAME.hlo` or `valid/NAME.mlir` holds the module as JAX lowers it, headed by the command that
legalizes it and by FileCheck lines for the outcome; `valid/NAME.legalized.hlo` (or `.mlir`) is that outcome. Two runs
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

from hlo_fixtures.programs import PROGRAMS, Program  # noqa: E402  after the path is set, so that the script runs anywhere
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


def files() -> dict[Path, bytes]:
    """Returns every file to write, by path."""
    made = {ROOT / "VERSIONS": f"jax {jax.__version__}, Python {sys.version_info[0]}.{sys.version_info[1]}\n".encode()}
    for program in PROGRAMS:
        text = header(program) + lower(program)
        made[ROOT / "valid" / f"{program.name}{suffix(program)}"] = text.encode()
        made[ROOT / "valid" / f"{program.name}.legalized{suffix(program)}"] = legalize(text, program)
    return made


def main() -> None:
    """Writes all files and says which."""
    for path, content in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        print(path.relative_to(ROOT.parent))


if __name__ == "__main__":
    main()

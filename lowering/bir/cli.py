"""`mx-opt bir verify|simulate|encode|disasm|draw FILE`: the tools of a BIR program.

A FILE of `-` is standard input. Exit status: 0, 1 when the program is at fault, 2 when the command line is.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lowering.arrays import ArrayFileError
from lowering.bir.adversarial import adversarial_bits
from lowering.bir.disasm import disassemble
from lowering.bir.errors import BirError
from lowering.bir.json_io import from_json
from lowering.bir.numerics import SCALE_RULES
from lowering.bir.program import Function, Module
from lowering.bir.simulator import simulate
from lowering.bir.verify import RULES, check, verify
from lowering.bir.wire import encode_module
from lowering.cli import files
from lowering.cli.flags import Flags, UsageError

__all__ = ["USAGE", "run"]

_VERIFY = "mx-opt bir verify FILE [--allow-fp4]"
_SIMULATE = (
    "mx-opt bir simulate FILE [--function NAME] [--input NAME=x.npy ...] [--seed N] [--scale-rule RULE] [-o DIR]"
)
_ENCODE = "mx-opt bir encode FILE [--function NAME] [--no-saturation] [-o OUT.bin]"
_DISASM = "mx-opt bir disasm FILE.bin [-o OUT]"
_DRAW = "mx-opt bir draw FILE -o OUT.svg|OUT.png [--function NAME] [--limit N]"

USAGE = "mx-opt bir verify|simulate|encode|disasm|draw FILE [options]"


def run(arguments: Sequence[str]) -> int:
    """Runs `mx-opt bir` with what follows; returns the exit status."""
    if arguments and arguments[0] in ("--help", "-h"):
        sys.stdout.write("\n".join(f"usage: {usage}" for usage, _ in _COMMANDS.values()) + "\n")
        return 0
    if not arguments or arguments[0] not in _COMMANDS:
        found = f"unknown command '{arguments[0]}'" if arguments else "no command given"
        raise UsageError(f"{found}; the commands are {', '.join(_COMMANDS)}\nusage: {USAGE}")
    usage, command = _COMMANDS[arguments[0]]
    try:
        return command(Flags(usage), arguments[1:])
    except BirError as error:
        sys.stderr.write(f"mx-opt: {error}\n")
        return 1


def _verify(flags: Flags, arguments: Sequence[str]) -> int:
    flags.boolean("allow-fp4", "Accept fp4 output, which the hardware definition refuses.")
    _, module = _read(flags, arguments)
    violations = verify(module, allow_fp4=flags["allow-fp4"])
    for violation in violations:
        sys.stderr.write(f"{violation}\n")
    opcodes = Counter(item.opcode for function in module.functions for item in function.instructions())
    listed = ", ".join(
        f"{count} {opcode}{'' if opcode in RULES or opcode in _PLAIN else ' (structure only)'}"
        for opcode, count in sorted(opcodes.items())
    )
    sys.stdout.write(f"{_plural(len(module.functions), 'function')}: {listed or 'no instructions'}\n")
    sys.stdout.write(f"{_plural(len(violations), 'violation')}\n")
    return 1 if violations else 0


_PLAIN = ("Load", "Save", "Memset")
"""Opcodes whose every rule is structural."""


def _simulate(flags: Flags, arguments: Sequence[str]) -> int:
    flags.string("function", "The function to run; may be left out when there is one.")
    flags.strings("input", "NAME=FILE.npy, repeated for each input; hostile random bits for all by default.")
    flags.integer("seed", 0, "Seed of the random inputs.", minimum=0)
    flags.choice("scale-rule", list(SCALE_RULES), None, "Scale rule; the module's own by default.")
    flags.boolean("allow-fp4", "Accept fp4 output.")
    flags.string("output", "Directory for NAME.npy of every output; nothing is saved by default.", short="o")
    file, module = _read(flags, arguments)
    if flags["output"] is not None:
        files.named_output(flags["output"], "-o")
    function = _chosen(module, file, flags["function"])
    inputs = _inputs(flags["input"]) if flags["input"] else _random_inputs(function, flags["seed"])
    results = simulate(
        module, inputs, function=function.name, scale_rule=flags["scale-rule"], allow_fp4=flags["allow-fp4"]
    )
    for name, value in results.items():
        line = f"{name}: {value.dtype.name}{list(value.shape)}"
        if flags["output"] is not None:
            if Path(name).name != name or "\0" in name:
                raise BirError(f"the output name {name} is no file name")
            path = Path(flags["output"]) / f"{name}.npy"
            _make_directory(path.parent)
            buffer = io.BytesIO()
            np.save(buffer, value)
            files.write_output(buffer.getvalue(), str(path))
            line += f" -> {path}"
        sys.stdout.write(f"{line}\n")
    return 0


def _encode(flags: Flags, arguments: Sequence[str]) -> int:
    flags.string("function", "The function to encode; may be left out when there is one.")
    flags.boolean("no-saturation", "Set the header bit of modules with fp8 saturation disabled.")
    flags.boolean("allow-fp4", "Accept fp4 output.")
    flags.string("output", "File to write; standard output by default.", short="o")
    file, module = _read(flags, arguments)
    function = _chosen(module, file, flags["function"])
    program = encode_module(module, function, saturate=not flags["no-saturation"], allow_fp4=flags["allow-fp4"])
    left_out = f"; no encoding is known for {', '.join(program.left_out)}" if program.left_out else ""
    sys.stderr.write(f"{function.name}, engine DVE: {_plural(len(program.names), 'word')}{left_out}\n")
    files.write_output(program.words, flags["output"])
    return 0


def _disasm(flags: Flags, arguments: Sequence[str]) -> int:
    flags.string("output", "File to write; standard output by default.", short="o")
    file = files.one_file(flags.parse(arguments), flags.usage)
    files.write_output(disassemble(files.read_input(file)).encode(), flags["output"])
    return 0


def _draw(flags: Flags, arguments: Sequence[str]) -> int:
    flags.string("output", "Picture to write, .svg or .png.", short="o")
    flags.string("function", "The function to draw; the one with most instructions by default.")
    flags.integer("limit", 40, "Instructions shown in the timeline.")
    flags.boolean("allow-fp4", "Accept fp4 output.")
    file, module = _read(flags, arguments)
    if flags["output"] is None:
        raise UsageError(f"-o names no picture\nusage: {flags.usage}")
    files.named_output(flags["output"], "-o")
    if flags["limit"] < 1:
        raise UsageError(f"--limit is {flags['limit']}, wanted 1 or more\nusage: {flags.usage}")
    check(module, allow_fp4=flags["allow-fp4"])
    function = _chosen(module, file, flags["function"], largest=True)
    try:
        draw = importlib.import_module("lowering.bir.draw")
    except ImportError as error:
        raise BirError(f"pictures need matplotlib, which is not here ({error}); install jax-mx[draw]") from error
    picture = draw.draw_function(function, Path(flags["output"]).suffix, limit=flags["limit"])
    files.write_output(picture, flags["output"])
    others = f" of {len(module.functions)}; --function chooses another" if len(module.functions) > 1 else ""
    sys.stdout.write(f"{function.name}{others} -> {flags['output']}\n")
    return 0


_COMMANDS: dict[str, tuple[str, Callable[[Flags, Sequence[str]], int]]] = {
    "verify": (_VERIFY, _verify),
    "simulate": (_SIMULATE, _simulate),
    "encode": (_ENCODE, _encode),
    "disasm": (_DISASM, _disasm),
    "draw": (_DRAW, _draw),
}


def _read(flags: Flags, arguments: Sequence[str]) -> tuple[str, Module]:
    """The file's name for messages, and its program."""
    file = files.one_file(flags.parse(arguments), flags.usage)
    name = files.display_name(file)
    try:
        return name, from_json(files.read_input(file))
    except BirError as error:
        raise BirError(f"{name}: {error}") from error


def _chosen(module: Module, file: str, name: str | None, *, largest: bool = False) -> Function:
    functions = {function.name: function for function in module.functions}
    names = ", ".join(functions) or "none"
    if name is not None:
        if name not in functions:
            raise UsageError(f"{file} has no function {name}; it has {names}")
        return functions[name]
    if len(functions) == 1 or (functions and largest):
        return max(module.functions, key=lambda function: sum(1 for _ in function.instructions()))
    raise UsageError(f"{file} has the functions {names}; choose one with --function")


def _inputs(pairs: Sequence[str]) -> dict[str, NDArray[np.generic]]:
    inputs: dict[str, NDArray[np.generic]] = {}
    for pair in pairs:
        name, separator, file = pair.partition("=")
        if not separator or not name or not file:
            raise UsageError(f"--input is {pair}, wanted NAME=FILE.npy")
        if name in inputs:
            raise UsageError(f"--input names {name} twice")
        try:
            value = files.read_array(file)
        except ArrayFileError as error:
            raise BirError(str(error)) from error
        # NumPy stores bfloat16 as raw bytes of its size; those are the bits.
        inputs[name] = value.view(f"<u{value.dtype.itemsize}") if value.dtype.kind == "V" else value
    return inputs


def _random_inputs(function: Function, seed: int) -> dict[str, NDArray[np.generic]]:
    sys.stdout.write(f"random inputs, seed {seed}\n")
    inputs: dict[str, NDArray[np.generic]] = {}
    for item in function.allocations_of_kind("ExternalInput"):
        if item.dtype.name not in ("bfloat16", "float16"):
            raise UsageError(f"the input {item.tensor} is {item.dtype.name}; give it with --input")
        inputs[item.tensor] = adversarial_bits(item.tensor_shape, item.dtype.name, seed)
    return inputs


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make directory {path}: {error.strerror}") from error


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"

"""Executes a module with MX calls on the CPU, on given or random inputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

from lowering import _compat
from lowering._compat import ir
from lowering.arrays import ArrayFileError, load_array
from lowering.attributes import text_of
from lowering.calls import CUSTOM_CALL, ArrayShape, array_shape, target_of
from lowering.diagnostics import LoweringError, error
from lowering.expansion import expand_calls, is_mx_target
from lowering.in_xla import is_enabled
from lowering.module import Module

_NUMPY_DTYPES: dict[str, Any] = {
    "pred": np.bool_,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    **{f"f{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    **{f"s{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
}
"""Types that random and stored arguments can have."""

_ARGUMENT_DTYPES: dict[str, Any] = _NUMPY_DTYPES | {
    "c64": np.complex64,
    "c128": np.complex128,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    **{f"s{n}": np.dtype(f"int{n}") for n in (2, 4)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (2, 4)},
}
"""Types that a caller's arguments can have: all that XLA and numpy both know."""

_MAX_ELEMENTS = 2**28
_SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0)


def argument_shapes(module: Module) -> tuple[ArrayShape, ...]:
    """Returns the shapes of the entry function's arguments.

    Raises:
        LoweringError: With code MX007 when the module has no entry, MX002 when a function's name is not UTF-8.
    """
    with module.context:
        functions = [op for op in module.mlir.body.operations if op.operation.name == "func.func"]
        # All names are read: XLA stops the process for one that is not UTF-8.
        by_name = {text_of(op.attributes["sym_name"]): op for op in functions}
        if "main" in by_name:
            kind = ir.FunctionType(by_name["main"].attributes["function_type"].value)
            return tuple(array_shape(t) for t in kind.inputs)
    raise error("MX007", f"{module.name} has no function @main", "give a module with an entry computation")


def random_arguments(module: Module, seed: int, *, hostile: bool = True) -> list[np.ndarray[Any, Any]]:
    """Returns random inputs, hostile ones: NaN, both infinities, subnormals and both zeros among the floats.

    Args:
        module: The module whose arguments are wanted.
        seed: Equal seeds give equal inputs.
        hostile: False for ordinary numbers only: a NaN spreads over every sum it enters and hides what else differs.

    Raises:
        LoweringError: With code MX007 for an argument that is no static array of a known type.
    """
    generator = np.random.default_rng(seed)
    return [_random_array(_executable(shape), generator, hostile) for shape in argument_shapes(module)]


def load_arguments(module: Module, files: Sequence[str]) -> list[np.ndarray[Any, Any]]:
    """Loads one `.npy` file for each argument. numpy stores bfloat16 and fp8 arrays as raw bytes; those are accepted.

    Raises:
        LoweringError: With code MX009 when files and arguments do not match.
        OSError: A file cannot be read.
    """
    shapes = [_executable(s) for s in argument_shapes(module)]
    if len(files) != len(shapes):
        raise error("MX009", f"{len(files)} inputs are given", f"give {len(shapes)}: {', '.join(map(str, shapes))}")
    return [_load(file, shape) for file, shape in zip(files, shapes, strict=True)]


def load_function(module: Module) -> Callable[..., list[jax.Array]]:
    """Compiles a module for the CPU as it is; returns a function of its arguments.

    The compilation happens here, not when the function is called. XLA's CPU compiler knows no MX calls: call
    `expand_calls` first, or call this within `enable_in_xla`, where the module may have them.

    Args:
        module: A module with a function `main`; it is not changed.

    Returns:
        A function of as many numpy or jax arrays as `main` has arguments, each of exactly the shape and dtype that
        the module names (bfloat16, fp8, fp4 and the 2- and 4-bit integers as `ml_dtypes` has them). It returns the
        results in order, as jax arrays on the CPU, and raises LoweringError with code MX009 for other arguments.

    Raises:
        LoweringError: With code MX007 when XLA cannot compile the module, or when it has MX calls that nothing
            expands.
    """
    device = jax.local_devices(backend="cpu")[0]
    shapes = argument_shapes(module)
    with module.context:
        if not is_enabled():
            _check_expanded(module)
        try:
            executable = _compat.compile_cpu(module.mlir)
        except _compat.IR_ERRORS as e:
            raise _cannot_execute(module, e) from None

    def call(*arguments: Any) -> list[jax.Array]:
        # XLA itself compares sizes in bytes only, and would take other arrays' bytes for what the module wants.
        _check_arguments(shapes, arguments)
        with jax.enable_x64(True):  # without it jax makes 32-bit arrays of 64-bit ones
            return list(executable.execute([jax.device_put(a, device) for a in arguments]))

    return call


def _check_expanded(module: Module) -> None:
    # A composite needs no expansion: XLA falls back to its decomposition.
    targets = {target_of(op) for op in module.operations_named(CUSTOM_CALL)}
    found = sorted(t for t in targets if is_mx_target(t))
    if found:
        raise error(
            "MX007",
            f"{module.name} has calls of {', '.join(found)}, which XLA's CPU compiler does not know",
            "call expand_calls on the module first, or load it within enable_in_xla",
        )


def _check_arguments(shapes: Sequence[ArrayShape], arguments: Sequence[Any]) -> None:
    """Raises LoweringError with code MX009 unless arguments are arrays of these shapes and types."""
    if len(arguments) != len(shapes):
        wanted = ", ".join(map(str, shapes))
        raise error(
            "MX009", f"{len(arguments)} arguments are given", f"give {len(shapes)}{': ' if shapes else ''}{wanted}"
        )
    for index, (given, shape) in enumerate(zip(arguments, shapes, strict=True)):
        wanted = f"give an array that is {shape}"
        if shape.element_type not in _ARGUMENT_DTYPES:
            raise error("MX007", f"argument {index} is to be {shape}, which is no array", "give the module arrays only")
        dtype = np.dtype(_ARGUMENT_DTYPES[shape.element_type])
        if not isinstance(given, np.ndarray | np.generic | jax.Array):
            raise error("MX009", f"argument {index} is a {type(given).__name__}", f"{wanted}, of dtype {dtype}")
        if given.dtype != dtype or tuple(given.shape) != shape.dims:
            found = f"{given.dtype}{list(given.shape)}"
            raise error("MX009", f"argument {index} is {found}", f"{wanted}, of dtype {dtype}")


def prepare(module: Module) -> Callable[..., list[np.ndarray[Any, Any]]]:
    """Expands a module's MX calls and compiles it for the CPU; returns a function of its arguments.

    The module itself is not changed.

    Raises:
        LoweringError: As `execute` says; with code MX009 only when the function is called.
    """
    expanded = module.clone()
    expand_calls(expanded)
    function = load_function(expanded)

    def call(*arguments: Any) -> list[np.ndarray[Any, Any]]:
        try:
            return [np.asarray(r) for r in function(*arguments)]
        except _compat.IR_ERRORS as e:
            raise _cannot_execute(module, e) from None

    return call


def execute(module: Module, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Runs a module on the CPU with its MX calls expanded; the module itself is not changed.

    What an MX call computes is `jax_mx.quantize_mx` with the scale rule that the call's `mx_scale_rule` attribute names
    (EMAX when it names none); a scaled matmul dequantizes both sides, multiplies in float32 and rounds once.

    Args:
        module: A module with a function `main`, legalized or not.
        arguments: An array for each argument of `main`, in order, each of exactly the shape and dtype that the module
            names (bfloat16, fp8, fp4 and the 2- and 4-bit integers as `ml_dtypes` has them).

    Returns:
        The results in order, with the shapes and dtypes that the module names.

    Raises:
        LoweringError: With code MX009 when arguments do not fit the module, with every violation of a call's contract,
            or with code MX007 when the module cannot be executed here.
    """
    return prepare(module)(*arguments)


def _cannot_execute(module: Module, cause: Exception) -> LoweringError:
    reason = " ".join(str(cause).split())[:500]
    return error("MX007", f"{module.name} cannot be executed: {reason}", "remove what a CPU cannot run")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How two arrays differ, byte for byte.

    Attributes:
        index: Which result.
        count: Number of elements that differ; -1 when shapes or dtypes do.
        first: Indices, left and right value of the first few, for people.
    """

    index: int
    count: int
    first: str


def compare(left: Sequence[np.ndarray[Any, Any]], right: Sequence[np.ndarray[Any, Any]]) -> list[Difference]:
    """Compares results byte for byte; equal results give an empty list."""
    if len(left) != len(right):
        return [Difference(index=-1, count=-1, first=f"{len(left)} and {len(right)} results")]
    differences = []
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            found = f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
            differences.append(Difference(index=index, count=-1, first=found))
            continue
        unequal = np.argwhere((_bytes(a) != _bytes(b)).any(axis=-1))
        if len(unequal):
            shown = ", ".join(f"{tuple(map(int, i))}: {a[tuple(i)]} and {b[tuple(i)]}" for i in unequal[:3])
            differences.append(Difference(index=index, count=len(unequal), first=shown))
    return differences


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return contiguous.reshape(*array.shape, 1).view(np.uint8)


def _executable(shape: ArrayShape) -> ArrayShape:
    if shape.element_type not in _NUMPY_DTYPES or not shape.is_static:
        raise error("MX007", f"an argument is {shape}", "give the module static array arguments of common types")
    if int(np.prod(shape.static_dims, dtype=np.float64)) > _MAX_ELEMENTS:
        raise error("MX007", f"an argument is {shape}, more than {_MAX_ELEMENTS} elements", "run a smaller module")
    return shape


def _random_array(shape: ArrayShape, generator: np.random.Generator, hostile: bool) -> np.ndarray[Any, Any]:
    dtype, dims = np.dtype(_NUMPY_DTYPES[shape.element_type]), shape.static_dims
    if dtype == np.bool_:
        return generator.integers(0, 2, dims).astype(np.bool_)
    if dtype.kind == "i":
        # Signed integers are mostly indices: small ones keep them in range.
        return generator.integers(0, 2, dims).astype(dtype)
    size = int(np.prod(dims))
    if dtype.kind == "u" or shape.element_type == "f8e8m0fnu":
        return np.frombuffer(generator.bytes(size * dtype.itemsize), dtype).reshape(dims)
    # Half of each float array has ordinary magnitudes, so that sums mean something; the rest is raw bits and specials.
    values = generator.standard_normal(size).astype(dtype)
    if not hostile:
        return values.reshape(dims)
    raw = np.frombuffer(generator.bytes(size * dtype.itemsize), dtype)
    kind = generator.integers(0, 32, size)
    values = np.where(kind < 4, raw, values)
    subnormals = (generator.integers(1, 8, size) * np.float64(ml_dtypes.finfo(dtype).smallest_subnormal)).astype(dtype)
    values = np.where(kind == 4, subnormals, values)
    special = np.array(_SPECIAL).astype(dtype)[generator.integers(0, len(_SPECIAL), size)]
    return np.where(kind == 5, special, values).astype(dtype).reshape(dims)


def _load(file: str, shape: ArrayShape) -> np.ndarray[Any, Any]:
    try:
        array = load_array(file)
    except ArrayFileError as e:
        raise error("MX009", str(e), "give an array saved with numpy.save") from None
    dtype = np.dtype(_NUMPY_DTYPES[shape.element_type])
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)
    if array.dtype != dtype or array.shape != shape.static_dims:
        raise error("MX009", f"{file} is {array.dtype}{list(array.shape)}", f"give an array that is {shape}")
    return array

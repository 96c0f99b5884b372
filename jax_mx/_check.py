"""Validation of arguments: every error names the argument, what was given and what is wanted."""

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_mx._formats import BLOCK_SIZE, LANES, DTypeLike, ElementFormat
from jax_mx._integers import check_integer
from jax_mx._scale_rule import ScaleRule

SOURCE_DTYPES = (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16))
SCALE_DTYPES = (jnp.dtype(jnp.uint8), jnp.dtype(jnp.float8_e8m0fnu))
OUT_DTYPES = (jnp.dtype(jnp.float32), *SOURCE_DTYPES)


def check_array(name: str, value: Any, dtypes: tuple[np.dtype[Any], ...]) -> jax.Array:
    """`value` as a jax array, if it is an array of one of `dtypes` and of rank 1 or more.

    Raises:
        TypeError: no array, or another dtype.
        ValueError: a scalar.
    """
    wanted = " or ".join(dtype.name for dtype in dtypes)
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise TypeError(f"{name}: got {type(value).__name__}, want an array of dtype {wanted}")
    if value.dtype not in dtypes:
        raise TypeError(f"{name}: got dtype {value.dtype}, want {wanted}")
    if len(value.shape) == 0:
        raise ValueError(f"{name}: got a scalar, want an array of rank 1 or more")
    return as_array(name, value)


def as_array(name: str, value: Any) -> jax.Array:
    """`value` as a jax array, if it holds values.

    Raises:
        TypeError: it has none: it only describes an array, or is none at all.
    """
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise TypeError(f"{name}: got {type(value).__name__}, want an array")
    try:
        return jnp.asarray(value)
    except TypeError:
        raise TypeError(f"{name}: got {type(value).__name__}, which has no values, want an array") from None


def check_dtype(name: str, value: DTypeLike, dtypes: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    """`value` as a dtype, if it is one of `dtypes`.

    Raises:
        TypeError: it is not.
    """
    try:
        dtype = jnp.dtype(value) if value is not None else None
    except TypeError:
        dtype = None
    if dtype not in dtypes:
        wanted = " or ".join(dtype.name for dtype in dtypes)
        raise TypeError(f"{name}: got {value if dtype is None else dtype}, want {wanted}")
    return dtype


def check_axis(axis: Any, shape: tuple[int, ...]) -> int:
    """`axis` as a non-negative int.

    Raises:
        TypeError: not an integer.
        ValueError: out of range for `shape`.
    """
    try:
        index = operator.index(axis)
    except TypeError:
        raise TypeError(f"axis: got {axis!r}, want an integer") from None
    rank = len(shape)
    if not -rank <= index < rank:
        raise ValueError(f"axis: got {index}, want one in [{-rank}, {rank}) for shape {shape}")
    return index % rank


def check_block_size(block_size: Any) -> None:
    """Refuses every block size but 32.

    Raises:
        TypeError: no integer.
        ValueError: any other.
    """
    check_integer("block_size", block_size, (BLOCK_SIZE,), ", the only one MX formats have")


def check_rule(rule: Any) -> ScaleRule:
    """`rule`, if it is a scale rule.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(rule, ScaleRule):
        raise TypeError(f"rule: got {rule!r}, want a jax_mx.ScaleRule such as jax_mx.EMAX")
    return rule


def check_multiple_of_lanes(name: str, shape: tuple[int, ...], axis: int) -> None:
    """Refuses an axis that cannot be packed four elements to a container.

    Raises:
        ValueError: the axis's length is not a multiple of 4.
    """
    if shape[axis] % LANES != 0:
        raise ValueError(
            f"{name}: got length {shape[axis]} along axis {axis} of shape {shape}, "
            f"want a multiple of {LANES}, the elements of one container"
        )


def check_container_dtype(name: str, data: Any, fmt: ElementFormat) -> jax.Array:
    """`data` as a jax array, if it is an array of `fmt`'s containers.

    Raises:
        TypeError: no array, or another dtype than the format's container.
        ValueError: a scalar.
    """
    if getattr(data, "dtype", fmt.container_dtype) != fmt.container_dtype:
        raise TypeError(f"{name}: got dtype {data.dtype}, want {fmt.container_dtype}, the x4 container of {fmt.name}")
    return check_array(name, data, (fmt.container_dtype,))


def check_scale_fits(scale: jax.Array, data: jax.Array, axis: int, name: str = "scale") -> None:
    """Refuses a scale whose shape, or sharding over explicit axes, does not belong to `data` quantized along `axis`.

    Raises:
        ValueError: it does not.
    """
    wanted = list(data.shape)
    wanted[axis] = scale_length(data.shape[axis] * LANES)
    if scale.shape != tuple(wanted):
        raise ValueError(
            f"{name}: got shape {scale.shape}, want {tuple(wanted)} for data of shape {data.shape} along axis {axis}"
        )
    data_type, scale_type = jax.typeof(data), jax.typeof(scale)
    check_whole_blocks(name.replace("scale", "data"), data_type, axis, BLOCK_SIZE // LANES)
    got, want = scale_type.sharding.spec, data_type.sharding.spec
    if got != want:
        raise ValueError(f"{name}: got sharding {got}, want {want}, that of its data")


def scale_length(length: int) -> int:
    """Number of blocks of an axis; the last one may be partial."""
    return (length + BLOCK_SIZE - 1) // BLOCK_SIZE


def check_whole_blocks(name: str, x: Any, axis: int, block: int) -> None:
    """Refuses an array whose type says that its shards split blocks.

    Only types of meshes with explicit axes say how an array is sharded. Elsewhere the compiler decides, and gathers.

    Args:
        name: the argument's name.
        x: the array's type, as `jax.typeof` gives it.
        axis: the quantized axis.
        block: what a block is long in `x`: 32 elements, or 8 containers.

    Raises:
        ValueError: a shard does not hold whole blocks.
    """
    sharding = x.sharding
    entry = sharding.spec[axis] if axis < len(sharding.spec) else None
    names = entry if isinstance(entry, tuple) else () if entry is None else (entry,)
    pieces = math.prod(sharding.mesh.shape[n] for n in names)
    if x.shape[axis] % (pieces * block) != 0 and pieces > 1:
        over = f"{'axis' if len(names) == 1 else 'axes'} {' and '.join(map(repr, names))}"
        raise ValueError(
            f"{name}: got {pieces} shards of {x.shape[axis] // pieces} along axis {axis} of shape {x.shape}, over mesh "
            f"{over}; want a multiple of {block}, one block, in each; gather that axis first with jax.sharding.reshard"
        )

"""`MXArray`: a quantized array as one value, a pytree of its containers and scale bytes.

The leaves are `data` and `scale`; format, axis, scale rule and logical dtype are static. The logical shape follows from
`data`, and the axis is counted from the end, so an array of stacked layers can be scanned or mapped over its leading
dimensions like any other.
"""

import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jax_mx import _mx_index, _mx_matmul, _mx_placement, _mx_shape
from jax_mx._api import dequantize_mx, quantize_mx
from jax_mx._check import (
    OUT_DTYPES,
    SCALE_DTYPES,
    check_array,
    check_axis,
    check_container_dtype,
    check_dtype,
    check_rule,
    check_scale_fits,
    scale_length,
)
from jax_mx._compat import api_boundary
from jax_mx._formats import LANES, DTypeLike, ElementFormat, as_format
from jax_mx._scale_rule import EMAX, ScaleRule


class MXArray:
    """A quantized array: containers and scale bytes that know what they stand for.

    Shardings: `device_put` puts the array where a sharding of its logical shape says. jax's own functions see two
    arrays and apply a sharding to `data` and to `scale`, each by its own shape; a pytree has no way to tell them
    better. So `jax.device_put`, `jax.sharding.reshard`, `jax.lax.with_sharding_constraint`, and `in_shardings` and
    `out_shardings` of `jax.jit` are right where every shard holds as many whole blocks. Elsewhere they fail with an
    error of jax that shows the shape of a leaf, or, if both happen to divide, put blocks apart from their scales.
    `jax.tree.map(lambda leaf: leaf.sharding, x)` gives the shardings of an array that is placed already, for `jax.jit`.

    Attributes:
        data: uint32[..., K/4, ...] (uint16 for float4), four codes a container.
        scale: uint8[..., ceil(K/32), ...], one E8M0 byte for each 32 elements.
        format: the element format.
        rule: the scale rule it was quantized by; None where that is not known, as for a published checkpoint.
        dtype: the logical dtype: float32, bfloat16 or float16. `dequantize` gives it unless told otherwise.
    """

    __slots__ = ("_axis_from_end", "data", "dtype", "format", "rule", "scale")

    # numpy asks this before it would take an MXArray apart element by element; so `numpy_array @ mx` comes here.
    __array_ufunc__ = None

    @api_boundary
    def __init__(
        self,
        data: Any,
        scale: Any,
        format: DTypeLike,  # noqa: A002  the field's own word
        *,
        axis: int = -1,
        rule: ScaleRule | None = None,
        dtype: DTypeLike = jnp.bfloat16,
    ):
        """Puts containers and scale bytes together that were quantized already. See `MXArray.quantize`.

        Args:
            data: uint32[..., K/4, ...] (uint16 for float4).
            scale: uint8 or float8_e8m0fnu[..., ceil(K/32), ...].
            format: the element format.
            axis: the quantized axis.
            rule: the scale rule it was quantized by, if it is known.
            dtype: the logical dtype: float32, bfloat16 or float16.

        Raises:
            TypeError: an argument is of another type.
            ValueError: `axis` is out of range, or the shape of `scale` does not belong to `data`.
        """
        fmt = as_format(format, "format")
        data = check_container_dtype("data", data, fmt)
        scale = check_array("scale", scale, SCALE_DTYPES)
        axis = check_axis(axis, data.shape)
        check_scale_fits(scale, data, axis)
        if scale.dtype != jnp.uint8:
            scale = jax.lax.bitcast_convert_type(scale, jnp.uint8)
        if rule is not None:
            check_rule(rule)
        self._set(data, scale, fmt, axis - data.ndim, rule, check_dtype("dtype", dtype, OUT_DTYPES))

    def _set(self, data: Any, scale: Any, fmt: Any, axis_from_end: int, rule: Any, dtype: Any) -> None:
        self.data, self.scale = data, scale
        self.format: ElementFormat = fmt
        self._axis_from_end = axis_from_end
        self.rule: ScaleRule | None = rule
        self.dtype: np.dtype[Any] = dtype

    def _like(self, data: Any, scale: Any, axis_from_end: int | None = None) -> Self:
        """The same kind of array with other leaves. Not validated: tracing puts placeholders in them."""
        new = object.__new__(type(self))
        axis_from_end = self._axis_from_end if axis_from_end is None else axis_from_end
        new._set(data, scale, self.format, axis_from_end, self.rule, self.dtype)
        return new

    @classmethod
    @api_boundary
    def quantize(
        cls,
        x: Any,
        format: DTypeLike = "float8_e4m3fn",  # noqa: A002  the field's own word
        *,
        axis: int = -1,
        rule: ScaleRule = EMAX,
    ) -> Self:
        """Quantizes an array along one axis, as `quantize_mx` does.

        Args:
            x: bfloat16, float16 or float32[..., K, ...], K a multiple of 4; float32 is rounded to bfloat16 first. Its
                dtype becomes the logical dtype.
            format: the element format.
            axis: the quantized axis.
            rule: the scale rule.

        Raises:
            TypeError: an argument is of another type.
            ValueError: `axis` is out of range or its length is not a multiple of 4.
        """
        x = check_array("x", x, OUT_DTYPES)
        fmt = as_format(format, "format")
        quantizable = x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x
        data, scale = quantize_mx(quantizable, fmt.name, axis=axis, rule=rule)
        return cls(data, scale, fmt.name, axis=axis, rule=rule, dtype=x.dtype)

    @api_boundary
    def dequantize(self, dtype: DTypeLike | None = None) -> jax.Array:
        """The values as an array of the logical dtype, or of `dtype`: float32 (exact), bfloat16 or float16.

        Raises:
            TypeError: `dtype` is none of these.
        """
        out_dtype = self.dtype if dtype is None else check_dtype("dtype", dtype, OUT_DTYPES)
        return dequantize_mx(self.data, self.scale, self.format, axis=self.axis, out_dtype=out_dtype)

    @property
    def axis(self) -> int:
        """The quantized axis, non-negative.

        Raises:
            ValueError: `data` and `scale` do not fit each other: an axis behind the quantized one was mapped away, or
                one leaf was replaced without the other.
        """
        data, scale = self.data.shape, self.scale.shape
        axis = len(data) + self._axis_from_end
        if axis < 0 or scale != (*data[:axis], scale_length(data[axis] * LANES), *data[axis + 1 :]):
            raise ValueError(
                f"MXArray: got data of shape {data} and scale of shape {scale}, want them quantized along axis "
                f"{self._axis_from_end}; jax.vmap and jax.lax.scan can map axes before that one only"
            )
        return axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape: that of the array that was quantized."""
        axis = self.axis
        shape = tuple(self.data.shape)
        return (*shape[:axis], shape[axis] * LANES, *shape[axis + 1 :])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return int(self.data.ndim)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of containers and scales together."""
        return int(self.data.size * self.data.dtype.itemsize + self.scale.size)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        """Format, logical shape, axis, rule and logical dtype; the values are in `dequantize()`."""
        if not hasattr(self.data, "shape"):  # a placeholder of some tree operation
            return f"MXArray({self.format}, data={self.data!r}, scale={self.scale!r})"
        rule = "unknown" if self.rule is None else self.rule
        return (
            f"MXArray({self.format}[{', '.join(map(str, self.shape))}], axis={self.axis}, rule={rule}, "
            f"dtype={self.dtype.name})"
        )

    def __jax_array__(self) -> jax.Array:
        """Lets `jnp.asarray` and functions of jax take it: dequantized to the logical dtype."""
        return self.dequantize()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Lets `np.asarray` take it: dequantized to the logical dtype."""
        if copy is False:
            raise ValueError("copy: got False, want None or True: dequantizing makes new values")
        return np.asarray(self.dequantize(), dtype)

    @api_boundary
    def device_put(self, sharding: Any) -> Self:
        """Puts the array where a sharding of its logical shape says: each shard's blocks with their scale bytes.

        While it is traced, as under `jax.jit`, this is `jax.lax.with_sharding_constraint`, or on a mesh with explicit
        axes `jax.sharding.reshard`.

        The quantized axis can be sharded only by whole blocks, as many in every shard, on automatic and on explicit
        axes alike. Where that is not so, this is an error, and the array is not put elsewhere than was asked for: that
        would take more memory on every device, and nothing would say so. Leave that axis None for it.

        Args:
            sharding: a NamedSharding, or a PartitionSpec of the mesh that `jax.set_mesh` sets.

        Raises:
            TypeError: `sharding` is of another type.
            ValueError: a shard would not hold whole blocks, or the sharding does not fit the shape.
        """
        leaves = _mx_placement.placed((self.data, self.scale), self.shape, self.axis, sharding)
        return self._like(*leaves)

    @api_boundary
    def __getitem__(self, index: Any) -> Self:
        """Indexes along any axis but cuts the quantized one only between blocks.

        Along the quantized axis a slice must start and stop at multiples of 32, or at the end. Along the other axes an
        index may be an integer, a slice or one array of integers, traced ones too.

        Raises:
            IndexError: too many indices, or an index out of range.
            TypeError: an index of another kind.
            ValueError: the index would cut through a block.
        """
        data_index, scale_index, axis_from_end = _mx_index.split_index(index, self.shape, self.axis)
        return self._like(self.data[data_index], self.scale[scale_index], axis_from_end)

    @api_boundary
    def reshape(self, *shape: Any) -> Self:
        """Reshapes where every block stays a block: the quantized axis may be kept, split or merged at multiples of 32.

        Args:
            *shape: the new shape, as one tuple or as several integers; one of them may be -1.

        Raises:
            TypeError: `shape` is no sequence of integers.
            ValueError: the number of elements differs, or blocks would not stay whole.
        """
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        data_shape, scale_shape, axis_from_end = _mx_shape.reshaped(self.shape, self.axis, tuple(wanted))
        return self._like(self.data.reshape(data_shape), self.scale.reshape(scale_shape), axis_from_end)

    @api_boundary
    def transpose(self, *axes: Any) -> Self:
        """Permutes the axes, in reverse order by default; the quantized axis moves along.

        Args:
            *axes: a permutation of the axes, as one tuple or as several integers.

        Raises:
            TypeError: an axis is no integer.
            ValueError: `axes` is no permutation.
        """
        wanted = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        order = _mx_shape.permutation(tuple(wanted) or tuple(reversed(range(self.ndim))), self.ndim)
        axis_from_end = order.index(self.axis) - self.ndim
        return self._like(self.data.transpose(order), self.scale.transpose(order), axis_from_end)

    @property
    def T(self) -> Self:  # noqa: N802  numpy's name
        """The array with its axes in reverse order."""
        return self.transpose()

    @api_boundary
    def __matmul__(self, other: Any) -> jax.Array:
        """The matrix product, as `jnp.matmul` takes dimensions.

        With another MXArray it is `scaled_matmul_mx`: both are to be quantized along the dimension that is contracted,
        this one along its last, the other along its second-to-last (or only) one. The result is bfloat16 where both
        logical dtypes are, else float32. With any other array, this one is dequantized.

        Raises:
            ValueError: one of them is quantized along another axis, or the shapes do not fit.
        """
        if isinstance(other, MXArray):
            return _mx_matmul.multiply(self, other)
        return jnp.matmul(self.dequantize(), other) if hasattr(other, "shape") else NotImplemented

    @api_boundary
    def __rmatmul__(self, other: Any) -> jax.Array:
        """The matrix product of an array with this one, dequantized."""
        return jnp.matmul(other, self.dequantize()) if hasattr(other, "shape") else NotImplemented


def _flatten(x: MXArray) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
    return (x.data, x.scale), (x.format, x._axis_from_end, x.rule, x.dtype)


def _flatten_with_keys(x: MXArray) -> tuple[tuple[tuple[Any, Any], tuple[Any, Any]], tuple[Any, ...]]:
    (data, scale), static = _flatten(x)
    return ((_DATA_KEY, data), (_SCALE_KEY, scale)), static


def _unflatten(static: tuple[Any, ...], leaves: Any) -> MXArray:
    new = object.__new__(MXArray)
    new._set(*leaves, *static)
    return new


_DATA_KEY, _SCALE_KEY = (jax.tree_util.GetAttrKey(name) for name in ("data", "scale"))
jax.tree_util.register_pytree_with_keys(MXArray, _flatten_with_keys, _unflatten, _flatten)

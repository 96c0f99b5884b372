"""`scaled_matmul_mx`: its values, transformations, lowering and errors."""

# ruff: noqa: E501 - a table reads best a row a line

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jax_mx
import lowering
from tests import reference
from tests.arrays import assert_same
from tests.errors import assert_blames_the_caller
from tests.test_lowering_mode import custom_calls, for_neuron

E4, E5, F4 = "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"
MATMUL = (((1,), (0,)), ((), ()))


def random_mx(seed: int, shape: tuple[int, ...], fmt: str, axis: int) -> tuple[jax.Array, jax.Array]:
    """Containers and scales whose products sum exactly in float32: codes of 0.5 to 4, scales of 1/4 to 4."""
    generator = np.random.default_rng(seed)
    form = reference.FORMATS[fmt]
    usable = [code for code in range(form.largest_code) if 0.5 <= form.value(code) <= 4]
    codes = generator.choice(usable, shape) | generator.choice([0, form.sign_bit], shape)
    scale_shape = list(shape)
    scale_shape[axis] = -(-shape[axis] // 32)
    data = jax_mx.pack_x4(jnp.asarray(codes, jnp.uint8), fmt, axis)
    return data, jnp.asarray(generator.integers(125, 130, scale_shape), jnp.uint8)


def values(data: jax.Array, scale: jax.Array, fmt: str, axis: int) -> np.ndarray:
    """The values as doubles, each from the scalar reference."""
    codes = np.moveaxis(np.asarray(jax_mx.unpack_x4(data, fmt, axis)), axis, -1)
    scales = np.moveaxis(np.asarray(scale), axis, -1)
    made = np.zeros(codes.shape)
    for index in np.ndindex(codes.shape):
        block = (*index[:-1], index[-1] // 32)
        made[index] = reference.dequantize(int(codes[index]), int(scales[block]), fmt)
    return np.moveaxis(made, -1, axis)


@pytest.mark.parametrize(("lhs_fmt", "rhs_fmt"), list(itertools.product(reference.FORMATS, repeat=2)))
def test_every_pair_of_formats_is_exact(lhs_fmt: str, rhs_fmt: str) -> None:
    lhs, rhs = random_mx(0, (5, 68), lhs_fmt, 1), random_mx(1, (68, 6), rhs_fmt, 0)
    want = values(*lhs, lhs_fmt, 1) @ values(*rhs, rhs_fmt, 0)
    got = jax_mx.scaled_matmul_mx(*lhs, *rhs, (lhs_fmt, rhs_fmt), dimension_numbers=MATMUL)
    assert got.dtype == jnp.float32
    assert np.array_equal(np.asarray(got, np.float64), want)


@pytest.mark.parametrize(
    ("lhs_shape", "rhs_shape", "dimension_numbers", "subscripts"),
    [
        ((5, 64), (6, 64), None, "mk,nk->mn"),
        ((64,), (64,), None, "k,k->"),
        ((64,), (64, 6), (((0,), (0,)), ((), ())), "k,kn->n"),
        ((3, 5, 64), (3, 64, 6), (((2,), (1,)), ((0,), (0,))), "bmk,bkn->bmn"),
        ((64, 3, 5), (6, 64, 3), (((0,), (-2,)), ((1,), (2,))), "kbm,nkb->bmn"),
        ((2, 3, 32, 5), (3, 6, 2, 32), (((2,), (3,)), ((1, 0), (0, 2))), "abkm,bnak->bamn"),
        ((2, 4, 64), (64, 3, 2), (((2,), (0,)), ((), ())), "mlk,kno->mlno"),
    ],
)
def test_dimension_numbers(lhs_shape: Any, rhs_shape: Any, dimension_numbers: Any, subscripts: str) -> None:
    ((lhs_axis,), (rhs_axis,)), _ = dimension_numbers or (((-1,), (-1,)), None)
    lhs_axis, rhs_axis = lhs_axis % len(lhs_shape), rhs_axis % len(rhs_shape)
    lhs, rhs = random_mx(2, lhs_shape, E4, lhs_axis), random_mx(3, rhs_shape, E4, rhs_axis)
    want = np.einsum(subscripts, values(*lhs, E4, lhs_axis), values(*rhs, E4, rhs_axis))
    got = jax_mx.scaled_matmul_mx(*lhs, *rhs, E4, dimension_numbers=dimension_numbers)
    assert np.array_equal(np.asarray(got, np.float64), want)


def test_bfloat16_results_are_rounded_once() -> None:
    lhs, rhs = random_mx(4, (16, 256), E4, 1), random_mx(5, (256, 16), E4, 0)
    exact = jax_mx.scaled_matmul_mx(*lhs, *rhs, dimension_numbers=MATMUL)
    got = jax_mx.scaled_matmul_mx(*lhs, *rhs, dimension_numbers=MATMUL, out_dtype=jnp.bfloat16)
    assert got.dtype == jnp.bfloat16
    assert np.array_equal(got, exact.astype(jnp.bfloat16)) and not np.array_equal(np.float32(got), exact)


def test_scales_as_e8m0_are_the_same_bytes() -> None:
    (data, scale), rhs = random_mx(6, (4, 64), E5, 1), random_mx(7, (64, 4), E5, 0)
    as_float = jax.lax.bitcast_convert_type(scale, jnp.float8_e8m0fnu)
    for got in (scale, as_float):
        product = jax_mx.scaled_matmul_mx(data, got, *rhs, E5, dimension_numbers=MATMUL)
        assert np.array_equal(product, jax_mx.scaled_matmul_mx(data, scale, *rhs, E5, dimension_numbers=MATMUL))


def test_a_nan_scale_and_an_infinity_reach_the_sum() -> None:
    lhs, (data, scale) = random_mx(8, (2, 64), E5, 1), random_mx(9, (64, 3), E5, 0)
    got = jax_mx.scaled_matmul_mx(*lhs, data, scale.at[1, 2].set(0xFF), E5, dimension_numbers=MATMUL)
    assert np.array_equal(np.isnan(got), [[False, False, True]] * 2)
    got = jax_mx.scaled_matmul_mx(*lhs, data.at[0, 1].set(0x7C), scale, E5, dimension_numbers=MATMUL)
    assert np.array_equal(np.isinf(got), [[False, True, False]] * 2)


@pytest.mark.parametrize("lhs_at", [None, 0, 1, 2])
@pytest.mark.parametrize("rhs_at", [None, 0, 1, 2])
def test_vmap_over_every_axis(lhs_at: int | None, rhs_at: int | None) -> None:
    if lhs_at is None and rhs_at is None:
        return
    lhs, rhs = random_mx(10, (7, 5, 64), E4, 2), random_mx(11, (7, 64, 6), E4, 1)
    if lhs_at is None:
        lhs = (lhs[0][0], lhs[1][0])
    if rhs_at is None:
        rhs = (rhs[0][0], rhs[1][0])

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, dimension_numbers=MATMUL)

    want = jnp.stack(
        [
            multiply(*(x if lhs_at is None else x[i] for x in lhs), *(x if rhs_at is None else x[i] for x in rhs))
            for i in range(7)
        ]
    )
    moved = [
        x if at is None else jnp.moveaxis(x, 0, at)
        for x, at in zip((*lhs, *rhs), (lhs_at,) * 2 + (rhs_at,) * 2, strict=True)
    ]
    got = jax.jit(jax.vmap(multiply, in_axes=(lhs_at, lhs_at, rhs_at, rhs_at)))(*moved)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("in_axes", [(0, None, None, None), (None, 0, None, None), (0, 1, None, 1), (None, 2, 1, None)])
def test_vmap_over_data_or_scale_alone(in_axes: tuple[int | None, ...]) -> None:
    operands = [*random_mx(12, (5, 64), E4, 1), *random_mx(13, (64, 6), E4, 0)]
    stacked = [x if at is None else jnp.stack([x, x + 1, x], axis=at) for x, at in zip(operands, in_axes, strict=True)]

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, dimension_numbers=MATMUL)

    got = jax.vmap(multiply, in_axes=in_axes)(*stacked)
    for i in range(3):
        one = [x if at is None else jnp.take(x, i, axis=at) for x, at in zip(stacked, in_axes, strict=True)]
        assert np.array_equal(got[i], multiply(*one))
    assert not np.array_equal(got[0], got[1])


def test_nested_vmap_and_scan() -> None:
    lhs, rhs = random_mx(14, (3, 4, 5, 64), E4, 3), random_mx(15, (3, 64, 6), E4, 1)

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, dimension_numbers=MATMUL)

    inner = jax.vmap(multiply, in_axes=(0, 0, None, None))
    want = jnp.stack([jnp.stack([multiply(*(x[a, b] for x in lhs), *(x[a] for x in rhs)) for b in range(4)]) for a in range(3)])  # fmt: skip
    assert np.array_equal(jax.vmap(inner)(*lhs, *rhs), want)
    _, scanned = jax.lax.scan(lambda carry, xs: (carry, inner(*xs)), 0, (*lhs, *rhs))
    assert np.array_equal(scanned, want)


def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


@pytest.mark.parametrize(
    ("lhs_spec", "rhs_spec"), [(("x", None), (None, "y")), (("x", "y"), ("y", None)), ((None, "x"), ("x", "y"))]
)
def test_sharded_jit(lhs_spec: Any, rhs_spec: Any) -> None:
    lhs, rhs = random_mx(16, (16, 256), E4, 1), random_mx(17, (256, 8), E4, 0)
    want = jax_mx.scaled_matmul_mx(*lhs, *rhs, dimension_numbers=MATMUL)
    sharded = [jax.device_put(x, NamedSharding(mesh(), PartitionSpec(*lhs_spec))) for x in lhs]
    sharded += [jax.device_put(x, NamedSharding(mesh(), PartitionSpec(*rhs_spec))) for x in rhs]
    got = jax.jit(lambda *operands: jax_mx.scaled_matmul_mx(*operands, dimension_numbers=MATMUL))(*sharded)
    assert np.array_equal(got, want)


def test_shard_map() -> None:
    lhs, rhs = random_mx(18, (16, 256), E4, 1), random_mx(19, (256, 8), E4, 0)
    p = PartitionSpec

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, dimension_numbers=MATMUL)

    want = multiply(*lhs, *rhs)
    rows = jax.shard_map(multiply, mesh=mesh(), in_specs=(p("x"), p("x"), p(), p()), out_specs=p("x"))
    assert np.array_equal(jax.jit(rows)(*lhs, *rhs), want)
    summed = jax.shard_map(
        lambda *operands: jax.lax.psum(multiply(*operands), "x"),
        mesh=mesh(),
        in_specs=(p(None, "x"), p(None, "x"), p("x"), p("x")),
        out_specs=p(),
    )
    assert np.array_equal(jax.jit(summed)(*lhs, *rhs), want)
    wrong = jax.shard_map(multiply, mesh=mesh(), in_specs=(p("x"), p("x"), p(), p()), out_specs=p())
    with pytest.raises(ValueError, match="out_specs"):
        wrong(*lhs, *rhs)


def test_the_jaxpr_shows_one_primitive_and_disable_jit_agrees() -> None:
    operands = (*random_mx(20, (4, 64), E4, 1), *random_mx(21, (4, 64), E4, 1))
    jaxpr = jax.make_jaxpr(jax_mx.scaled_matmul_mx)(*operands)
    assert [equation.primitive.name for equation in jaxpr.eqns] == ["scaled_matmul_mx"]
    with jax.disable_jit():
        assert np.array_equal(jax_mx.scaled_matmul_mx(*operands), jax.jit(jax_mx.scaled_matmul_mx)(*operands))


@pytest.mark.parametrize("fmt", [E4, E5])
@pytest.mark.parametrize(("out_dtype", "mlir"), [("float32", "f32"), ("bfloat16", "bf16")])
def test_neuron_gets_the_custom_call(fmt: str, out_dtype: str, mlir: str) -> None:
    operands = (*random_mx(22, (3, 5, 64), fmt, 2), *random_mx(23, (64, 3, 6), fmt, 0))

    def multiply(*operands: jax.Array) -> jax.Array:
        dims = (((2,), (0,)), ((0,), (1,)))
        return jax_mx.scaled_matmul_mx(*operands, fmt, dimension_numbers=dims, out_dtype=out_dtype)

    (call,) = custom_calls(for_neuron(multiply, *operands))
    assert call.target == "__op$block_scaled_dot"
    assert call.api_version == 2
    assert call.config == {
        "scaled_dot_backend_config": {
            "element_dtype": fmt,
            "lhs_batch_dimensions": [0],
            "rhs_batch_dimensions": [1],
            "lhs_contracting_dimensions": [2],
            "rhs_contracting_dimensions": [0],
        }
    }
    assert call.operands == (
        "tensor<3x5x16xui32>", "tensor<16x3x6xui32>", "tensor<3x5x2xui8>", "tensor<2x3x6xui8>",
    )  # fmt: skip
    assert call.results == (f"tensor<3x5x6x{mlir}>",)


@pytest.mark.parametrize(("lhs_shape", "rhs_shape"), [((64,), (5, 64)), ((5, 64), (64,)), ((64,), (64,))])
def test_vectors_become_matrices_for_the_call(lhs_shape: Any, rhs_shape: Any) -> None:
    operands = (*random_mx(24, lhs_shape, E4, -1), *random_mx(25, rhs_shape, E4, -1))
    lowered = for_neuron(jax_mx.scaled_matmul_mx, *operands)
    (call,) = custom_calls(lowered)
    assert [operand.count("x") for operand in call.operands] == [2, 2, 2, 2]
    assert lowered.out_info.shape == jax_mx.scaled_matmul_mx(*operands).shape
    assert_executes(lowered, operands, jax_mx.scaled_matmul_mx(*operands))


def assert_executes(lowered: Any, operands: Any, want: jax.Array) -> None:
    """Legalizes a module, runs it on the CPU and compares bits."""
    module = lowering.read_module(lowered.as_text(debug_info=True), "module")
    _, reports = lowering.run_passes(module, [lowering.LegalizeQuantizeMx(), lowering.LegalizeScaledMatmul()])
    assert [report.rewritten for report in reports] == [0, 1]
    (got,) = lowering.execute(module, [np.asarray(x) for x in operands])
    assert_same(got.view(np.uint32), np.asarray(want).view(np.uint32), "legalized product")


@pytest.mark.parametrize("fmt", [E4, E5])
def test_what_is_emitted_validates_legalizes_and_computes_the_same(fmt: str) -> None:
    operands = (*random_mx(26, (3, 5, 64), fmt, 2), *random_mx(27, (3, 64, 6), fmt, 1))

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, fmt, dimension_numbers=(((2,), (1,)), ((0,), (0,))))

    assert_executes(for_neuron(multiply, *operands), operands, multiply(*operands))


@pytest.mark.parametrize("formats", [(E4, E5), (F4, F4), (E4, F4)])
def test_formats_that_the_call_cannot_name(formats: tuple[str, str]) -> None:
    operands = (*random_mx(28, (4, 64), formats[0], 1), *random_mx(29, (4, 64), formats[1], 1))

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, formats)

    assert custom_calls(for_neuron(multiply, *operands)) == []
    with (
        jax_mx.lowering_mode("custom_call"),
        pytest.raises(ValueError, match=r"^element formats: got .*, which the __op.* call"),
    ):
        jax.jit(multiply).lower(*operands)


def test_other_platforms_and_modes() -> None:
    operands = (*random_mx(30, (4, 64), E4, 1), *random_mx(31, (4, 64), E4, 1))
    f = jax.jit(jax_mx.scaled_matmul_mx)
    for platform in ("cpu", "cuda", "rocm", "tpu"):
        assert custom_calls(f.trace(*operands).lower(lowering_platforms=(platform,))) == []
    with jax_mx.lowering_mode("custom_call"):
        assert [call.target for call in custom_calls(f.lower(*operands))] == ["__op$block_scaled_dot"]
    with jax_mx.lowering_mode("inline"):
        assert custom_calls(for_neuron(f, *operands)) == []


def test_export_for_both_platforms() -> None:
    operands = (*random_mx(32, (4, 64), E4, 1), *random_mx(33, (4, 64), E4, 1))
    exported = jax.export.export(
        jax.jit(jax_mx.scaled_matmul_mx),
        platforms=("cpu", "neuron"),
        disabled_checks=jax_mx.EXPORT_DISABLED_CHECKS,
    )(*operands)
    again = jax.export.deserialize(exported.serialize())
    assert again.mlir_module().count("@__op$block_scaled_dot") == 1
    assert np.array_equal(again.call(*operands), jax_mx.scaled_matmul_mx(*operands))


A, B = random_mx(0, (4, 64), E4, 1), random_mx(1, (64, 4), E4, 0)

CASES: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("container", lambda: jax_mx.scaled_matmul_mx(*A, *B, F4), TypeError, "lhs_data: got dtype uint32, want uint16"),
    ("formats", lambda: jax_mx.scaled_matmul_mx(*A, *B, (E4, F4)), TypeError, "rhs_data: got dtype uint32, want uint16"),
    ("three", lambda: jax_mx.scaled_matmul_mx(*A, *B, (E4, E4, E4)), TypeError, "dtype: got 3 formats, want one, or two"),
    ("of_a_pair", lambda: jax_mx.scaled_matmul_mx(*A, *B, (E4, "float8")), TypeError, "dtype[1]: got 'float8', want an MX element format"),
    ("dtype", lambda: jax_mx.scaled_matmul_mx(*A, *B, "float8"), TypeError, "dtype: got 'float8', want an MX element format"),
    ("scale_dtype", lambda: jax_mx.scaled_matmul_mx(A[0], A[0], *B), TypeError, "lhs_scale: got dtype uint32, want uint8 or float8_e8m0fnu"),
    ("scale_shape", lambda: jax_mx.scaled_matmul_mx(*A, B[0], B[1].T, dimension_numbers=MATMUL), ValueError, "rhs_scale: got shape (4, 2), want (2, 4)"),
    ("sizes", lambda: jax_mx.scaled_matmul_mx(*A, *B), ValueError, "dimension_numbers: got contracting dimensions of different sizes, 1 of lhs of shape (4, 16) and 1 of rhs"),
    ("range", lambda: jax_mx.scaled_matmul_mx(*A, *B, dimension_numbers=(((2,), (0,)), ((), ()))), ValueError, "dimension_numbers: got dimension 2 of lhs, want one in [-2, 2)"),
    ("form", lambda: jax_mx.scaled_matmul_mx(*A, *B, dimension_numbers=((1,), (0,))), TypeError, "dimension_numbers: got ((1,), (0,)), want ((lhs contracting"),
    ("twice", lambda: jax_mx.scaled_matmul_mx(*A, *A, dimension_numbers=(((1,), (1,)), ((1,), (1,)))), ValueError, "dimension_numbers: got a dimension of lhs of shape (4, 16) twice"),
    ("several", lambda: jax_mx.scaled_matmul_mx(*A, *A, dimension_numbers=(((0, 1), (0, 1)), ((), ()))), ValueError, "dimension_numbers: got 2 contracting dimensions, want one"),
    ("none", lambda: jax_mx.scaled_matmul_mx(*A, *A, dimension_numbers=(((), ()), ((), ()))), ValueError, "dimension_numbers: got 0 contracting dimensions, want one"),
    ("counts", lambda: jax_mx.scaled_matmul_mx(*A, *A, dimension_numbers=(((1,), (1,)), ((0,), ()))), ValueError, "dimension_numbers: got 1 batch dimensions of lhs and 0 of rhs"),
    ("out_dtype", lambda: jax_mx.scaled_matmul_mx(*A, *A, out_dtype=jnp.float16), TypeError, "out_dtype: got float16, want float32 or bfloat16"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_error_names_the_argument(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    assert_blames_the_caller(call, error, text)

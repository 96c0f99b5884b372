"""`MXArray.device_put`: data and scale by one sharding of the logical array, and an error where blocks would split."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_mx import MXArray
from tests.arrays import assert_same
from tests.collectives import mesh, random_bits

kinds = pytest.mark.parametrize("explicit", [False, True], ids=["auto", "explicit"])


def assert_placed(got: MXArray, want: MXArray, sharding: NamedSharding) -> None:
    for name in ("data", "scale"):
        leaf = getattr(got, name)
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim), (name, leaf.sharding)
        assert_same(leaf, getattr(want, name), name)
    assert (got.shape, got.axis, got.format, got.dtype) == (want.shape, want.axis, want.format, want.dtype)


@kinds
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("as_spec", [False, True], ids=["sharding", "spec"])
@pytest.mark.parametrize(
    ("axis", "spec"),
    [(1, P(None, "b")), (1, P("b", "a")), (1, P(("a", "b"))), (0, P("a", "b")), (1, P()), (-1, P("a", None))],
)
def test_puts_data_and_scale_by_one_sharding(axis: int, spec: P, as_spec: bool, jit: bool, explicit: bool) -> None:
    x = MXArray.quantize(random_bits(64, 128), axis=axis)
    on = mesh(2, 4, explicit=explicit)

    def put(x: MXArray) -> MXArray:
        return x.device_put(spec if as_spec else NamedSharding(on, spec))

    with jax.set_mesh(on):
        got = (jax.jit(put) if jit else put)(x)
    assert_placed(got, x, NamedSharding(on, spec))


@kinds
def test_puts_without_a_mesh_in_context(explicit: bool) -> None:
    x, sharding = MXArray.quantize(random_bits(16, 256)), NamedSharding(mesh(8, explicit=explicit), P(None, "d"))
    assert_placed(x.device_put(sharding), x, sharding)


@kinds
def test_puts_elsewhere_what_is_sharded_already(explicit: bool) -> None:
    x, on = MXArray.quantize(random_bits(16, 256)), mesh(2, 4, explicit=explicit)
    first, second = NamedSharding(on, P("b", "a")), NamedSharding(on, P(None, ("a", "b")))
    with jax.set_mesh(on):
        assert_placed(x.device_put(first).device_put(second), x, second)
        assert_placed(jax.jit(lambda x: x.device_put(second))(x.device_put(first)), x, second)


@kinds
def test_under_vmap(explicit: bool) -> None:
    x, on = MXArray.quantize(random_bits(2, 16, 128)), mesh(2, 4, explicit=explicit)
    with jax.set_mesh(on):
        placed = x.device_put(P("a"))
        got = jax.jit(jax.vmap(lambda x: x.device_put(P(None, "b")), spmd_axis_name="a"))(placed)
    assert_placed(got, x, NamedSharding(on, P("a", None, "b")))


@kinds
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("length", "spec", "wanted"),
    [
        (
            128,
            P(None, ("a", "b")),
            r"^sharding: got 8 shards along axis 1 of shape \(16, 128\), over mesh axes 'a' and 'b'; it is quantized "
            r"along that axis, which has 4 blocks of 32, want as many whole blocks in each; leave that axis None",
        ),
        (
            192,
            P("a", "b"),
            r"^sharding: got 4 shards along axis 1 of shape .*, over mesh axis 'b'; .* 6 blocks of 32, ",
        ),
        # Data of 10 containers and scale of 2 bytes both divide by 2, but the first block lies in both halves.
        (40, P(None, "a"), r"^sharding: got 2 shards along axis 1 of .* 1 block of 32 and a partial one, want as many"),
    ],
)
def test_splitting_blocks_is_an_error(length: int, spec: P, wanted: str, jit: bool, explicit: bool) -> None:
    x, on = MXArray.quantize(random_bits(16, length)), mesh(2, 4, explicit=explicit)

    def put(x: MXArray) -> MXArray:
        return x.device_put(NamedSharding(on, spec))

    with jax.set_mesh(on), pytest.raises(ValueError, match=wanted):
        (jax.jit(put) if jit else put)(x)
    whole = NamedSharding(on, P(spec[0], None))  # as the error says
    assert_placed(x.device_put(whole), x, whole)


def test_an_error_of_another_axis_shows_the_logical_shape() -> None:
    x, on = MXArray.quantize(random_bits(6, 128)), mesh(2, 4)
    with pytest.raises(ValueError, match=r"\(6, 128\)"):
        x.device_put(NamedSharding(on, P("b")))


@pytest.mark.parametrize("sharding", [None, "a", ("a",)])
def test_what_is_no_sharding(sharding: Any) -> None:
    with pytest.raises(TypeError, match=r"^sharding: got \w+, want a NamedSharding, or a PartitionSpec"):
        MXArray.quantize(random_bits(4, 32)).device_put(sharding)


def test_a_device_is_for_jax_device_put() -> None:
    x, device = MXArray.quantize(random_bits(4, 32)), jax.devices()[1]
    with pytest.raises(TypeError, match=r"jax.device_put takes a device"):
        x.device_put(device)
    assert jax.device_put(x, device).scale.devices() == {device}


def test_a_spec_needs_a_mesh() -> None:
    with pytest.raises(ValueError, match=r"^sharding: got .* outside jax.set_mesh, want a NamedSharding there"):
        MXArray.quantize(random_bits(4, 32)).device_put(P())


def test_shardings_for_jit_are_those_of_the_leaves() -> None:
    x, sharding = MXArray.quantize(random_bits(16, 256)), NamedSharding(mesh(8), P(None, "d"))
    shardings = jax.tree.map(lambda leaf: leaf.sharding, x.device_put(sharding))
    got = jax.jit(lambda x: x, in_shardings=(shardings,), out_shardings=shardings)(x)
    assert_placed(got, x, sharding)


def test_jax_itself_shards_the_leaves_apart() -> None:
    """What the docstring says of `jax.device_put`."""
    sharding = NamedSharding(mesh(8), P(None, "d"))
    x = MXArray.quantize(random_bits(16, 256))
    assert_placed(jax.device_put(x, sharding), x, sharding)
    with pytest.raises(ValueError, match=r"\(16, 4\)|size is 4"):
        jax.device_put(MXArray.quantize(random_bits(16, 128)), sharding)


def test_a_product_of_placed_arrays() -> None:
    x, w = MXArray.quantize(jnp.ones((16, 128), jnp.bfloat16)), MXArray.quantize(jnp.ones((24, 128), jnp.bfloat16))
    on = mesh(2, 4, explicit=True)
    with jax.set_mesh(on):
        got = x.device_put(P("a", None)) @ w.device_put(P("b", None)).T
    assert got.sharding.spec == P("a", "b")
    assert_same(got, jnp.full((16, 24), 128, got.dtype), "product")

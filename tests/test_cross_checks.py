"""Cross-checks against implementations nobody here wrote: ml_dtypes' casts and StableHLO's reference interpreter."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import jax_mx
from tests import reference
from tests.arrays import RULES, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")

BITS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("source", reference.SOURCES)
@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("rule", ["EMAX", "NKI"])
def test_ml_dtypes_casts(source: str, fmt: str, rule: str) -> None:
    """On finite values within range, a cast of the scaled value is the element stage; NumPy does not flush."""
    rng = np.random.default_rng(0)
    finite = BITS[np.isfinite(np.asarray(from_bits(BITS, source)).astype(np.float32))]
    for _ in range(4):
        # Sorted by magnitude, so that the elements of a block are near each other and most do not vanish.
        ordered = finite[np.lexsort((rng.random(finite.size), finite & 0x7FFF))]
        blocks = ordered[: ordered.size // 32 * 32].reshape(-1, 32)
        data, scale = jax_mx.quantize_mx(from_bits(blocks, source), fmt, rule=RULES[rule])
        values = np.asarray(from_bits(blocks, source)).astype(np.float64)
        scaled = values * 2.0 ** (127.0 - np.asarray(scale).astype(np.float64))
        target = np.dtype(getattr(ml_dtypes, fmt))
        in_range = np.abs(scaled) <= float(ml_dtypes.finfo(target).max)
        assert in_range.mean() > 0.5
        cast = scaled.astype(np.float32).astype(target).view(np.uint8)
        got = np.asarray(jax_mx.unpack_x4(data, fmt))
        assert_same(got[in_range], cast[in_range], "codes")


@pytest.mark.parametrize(
    ("source", "fmt", "rule", "axis"),
    [
        ("bfloat16", "float8_e4m3fn", "EMAX", 1),
        ("bfloat16", "float8_e5m2", "NKI", 0),
        ("float16", "float8_e4m3fn", "OCP_FLOOR", 0),
        ("bfloat16", "float4_e2m1fn", "EMAX_ALT", 1),
        ("float16", "float4_e2m1fn", "EMAX", 0),
    ],
)
def test_stablehlo_reference_interpreter(source: str, fmt: str, rule: str, axis: int) -> None:
    """The lowered module means the same to StableHLO's own interpreter, which is no compiler and flushes nothing."""
    bits = np.random.default_rng(2).integers(0, 1 << 16, size=(64, 64), dtype=np.uint16)
    bits[:32, :32] &= 0x807F if source == "bfloat16" else 0x83FF  # subnormals
    bits[32:, :32] = (bits[32:, :32] & 0x9FFF) | 0x2000  # exponents near each other
    x = from_bits(bits, source)

    with jax_mx.lowering_mode("inline"):
        lowered = jax.jit(lambda x: jax_mx.quantize_mx(x, fmt, axis=axis, rule=RULES[rule])).lower(x)
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        element = ir.BF16Type.get() if source == "bfloat16" else ir.F16Type.get()
        operand = ir.DenseElementsAttr.get(bits, type=element, shape=bits.shape)
        results = [np.array(result) for result in stablehlo.eval_module(module, [operand])]

    for got, want in zip(results, jax_mx.quantize_mx(x, fmt, axis=axis, rule=RULES[rule]), strict=True):
        assert_same(got.astype(want.dtype), want, "result")


def test_the_interpreter_is_not_the_compiler() -> None:
    """The check above would prove little if the interpreter flushed subnormals as XLA does on this platform."""
    lowered = jax.jit(lambda x: x * 2.0).lower(jnp.float32(2.0**-130))
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        operand = ir.DenseElementsAttr.get(np.float32(2.0**-130))
        (result,) = stablehlo.eval_module(module, [operand])
        assert float(np.array(result)) == 2.0**-129

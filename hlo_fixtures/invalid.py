"""Calls that break one rule each, or several at once, and the diagnostic that each must give."""

import json
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from hlo_fixtures.programs import BF16, array

GOOD_CONFIG: dict[str, Any] = {"block_size": 32, "dim": 1, "dtype": "float8_e4m3fn", "scale_method": "EMAX"}
DATA, SCALE = array(4, 16, dtype=jnp.uint32), array(4, 2, dtype=jnp.uint8)
LHS, RHS = array(2, 8, 16, dtype=jnp.uint32), array(2, 4, 16, dtype=jnp.uint32)
LHS_SCALE, RHS_SCALE = array(2, 8, 2, dtype=jnp.uint8), array(2, 4, 2, dtype=jnp.uint8)
PRODUCT = array(2, 8, 4, dtype=jnp.float32)
DOT_CONFIG: dict[str, Any] = {
    "lhs_batch_dimensions": [0],
    "rhs_batch_dimensions": [0],
    "lhs_contracting_dimensions": [2],
    "rhs_contracting_dimensions": [2],
    "element_dtype": "float8_e4m3fn",
}


@dataclass(frozen=True, kw_only=True)
class Invalid:
    """One call and what it must be told.

    Attributes:
        expected: Texts that the diagnostics contain, one for each.
        operands: Shapes of the operands.
        results: Shapes of the results.
        config: Configuration as JSON text, None for none.
        target: Custom call target.
    """

    expected: tuple[str, ...]
    operands: tuple[jax.ShapeDtypeStruct, ...] = (array(4, 64),)
    results: tuple[jax.ShapeDtypeStruct, ...] = (DATA, SCALE)
    config: str | None = field(default_factory=lambda: json.dumps(GOOD_CONFIG))
    target: str = "QuantizeMX"

    def function(self, *operands: jax.Array) -> Any:
        """Emits the call."""
        results = self.results[0] if len(self.results) == 1 else self.results
        config = {} if self.config is None else {"legacy_backend_config": self.config}
        return jax.ffi.ffi_call(self.target, results, custom_call_api_version=2, **config)(*operands)


def quantize(expected: str | tuple[str, ...], *, config: Any = GOOD_CONFIG, **shapes: Any) -> Invalid:
    """Returns a QuantizeMX call; `config` is JSON text, a dictionary to merge into a good one, or None."""
    if isinstance(config, dict):
        merged = {k: v for k, v in {**GOOD_CONFIG, **config}.items() if v is not None}
        config = json.dumps(merged)
    return Invalid(expected=(expected,) if isinstance(expected, str) else expected, config=config, **shapes)


def dot(expected: str | tuple[str, ...], *, config: Any = DOT_CONFIG, **shapes: Any) -> Invalid:
    """Returns a block scaled dot call; `config` is JSON text or a dictionary to merge into a good one."""
    if isinstance(config, dict):
        config = json.dumps({"scaled_dot_backend_config": {**DOT_CONFIG, **config}})
    given = {"operands": (LHS, RHS, LHS_SCALE, RHS_SCALE), "results": (PRODUCT,), **shapes}
    expected = (expected,) if isinstance(expected, str) else expected
    return Invalid(expected=expected, config=config, target="__op$block_scaled_dot", **given)


def u32(*shape: int) -> jax.ShapeDtypeStruct:
    """Returns the shape of containers."""
    return array(*shape, dtype=jnp.uint32)


def u8(*shape: int) -> jax.ShapeDtypeStruct:
    """Returns the shape of scales."""
    return array(*shape, dtype=jnp.uint8)


INVALID: dict[str, tuple[Invalid, ...]] = {
    "evrf036_config": (
        quantize("[NCC_EVRF036] backend_config is missing", config=None),
        quantize("[NCC_EVRF036] backend_config is not a JSON object: []", config="[]"),
        quantize("[NCC_EVRF036] backend_config key 'dim' has a value that never ends", config='{"dim": 1'),
        quantize("[NCC_EVRF036] backend_config key 'dim' is \"1\"", config={"dim": "1"}),
        quantize("[NCC_EVRF036] backend_config key 'dim' is 1.5", config={"dim": 1.5}),
        quantize("[NCC_EVRF036] backend_config key 'block_size' is true", config={"block_size": True}),
        quantize("[NCC_EVRF036] backend_config key 'dtype' is 7", config={"dtype": 7}),
        quantize(
            "[NCC_EVRF036] backend_config key 'dim' appears more than once",
            config='{"dim": 1, "dim": 1, "dtype": "float8_e5m2"}',
        ),
        quantize("[NCC_EVRF036] backend_config key 'dim' is NaN", config='{"dim": NaN, "dtype": "float8_e5m2"}'),
        quantize("[NCC_EVRF036] backend_config key 'dim' is 1e400", config='{"dim": 1e400, "dtype": "float8_e5m2"}'),
        quantize(
            "[NCC_EVRF036] backend_config key 'dim' is 99999999999999999999",
            config='{"dim": 99999999999999999999, "dtype": "float8_e5m2"}',
        ),
    ),
    "evrf037_operands": (quantize("[NCC_EVRF037] QuantizeMX has 2 operands", operands=(array(4, 64), array(4, 64))),),
    "evrf038_dim": (
        quantize("[NCC_EVRF038] dim is 2", config={"dim": 2}),
        quantize("[NCC_EVRF038] dim is -3", config={"dim": -3}),
        quantize(
            "[NCC_EVRF038] dim is 0",
            config={"dim": 0},
            operands=(array(64, 2, 4),),
            results=(u32(16, 2, 4), u8(2, 2, 4)),
        ),
        quantize(
            "[NCC_EVRF038] dim is missing",
            config={"dim": None},
            operands=(array(2, 4, 64),),
            results=(u32(2, 4, 16), u8(2, 4, 2)),
        ),
        quantize("[NCC_EVRF038] dim is -2", config={"dim": -2}, operands=(array(64),), results=(u32(16), u8(2))),
        quantize("[NCC_EVRF038] dim is 0", config={"dim": 0}, operands=(array(),), results=(u32(), u8())),
    ),
    "evrf039_block_size": (
        quantize("[NCC_EVRF039] block_size is 16", config={"block_size": 16}),
        quantize("[NCC_EVRF039] block_size is 0", config={"block_size": 0}),
    ),
    "evrf040_scale_method": (quantize("[NCC_EVRF040] scale_method is 'FLOOR'", config={"scale_method": "FLOOR"}),),
    "evrf041_operand_type": (
        quantize("[NCC_EVRF041] the operand's element type is f32", operands=(array(4, 64, dtype=jnp.float32),)),
        quantize("[NCC_EVRF041] the operand's element type is s8", operands=(array(4, 64, dtype=jnp.int8),)),
    ),
    "evrf042_results": (
        quantize("[NCC_EVRF042] dtype is missing", config={"dtype": None}),
        quantize("[NCC_EVRF042] dtype is 'float8_e4m3'", config={"dtype": "float8_e4m3"}),
        quantize(
            ("[NCC_EVRF042] dtype is 'float4_e2m1fn'", "[NCC_EVRF042] result 0, the data, has element type u16"),
            config={"dtype": "float4_e2m1fn"},
            results=(array(4, 16, dtype=jnp.uint16), SCALE),
        ),
        quantize("[NCC_EVRF042] result 0, the data, has element type s32", results=(array(4, 16, dtype="i4"), SCALE)),
        quantize("[NCC_EVRF042] result 0, the data, is u32[4,64], not u32[4,16]", results=(u32(4, 64), SCALE)),
        quantize("[NCC_EVRF042] result 0, the data, is u32[1,64], not u32[4,16]", results=(u32(1, 64), SCALE)),
        quantize("[NCC_EVRF042] result 1, the scale, is u8[4,1], not u8[4,2]", results=(DATA, u8(4, 1))),
        quantize("[NCC_EVRF042] result 1, the scale, is u8[2,64], not u8[4,2]", results=(DATA, u8(2, 64))),
        quantize("[NCC_EVRF042] result 1, the scale, is bf16[4,2]", results=(DATA, array(4, 2, dtype=BF16))),
        quantize(
            "[NCC_EVRF042] result 1, the scale, is u8[3,1], not u8[3,2]",
            operands=(array(3, 36),),
            results=(u32(3, 9), u8(3, 1)),
        ),
    ),
    "evrf043_operands": (dot("[NCC_EVRF043] __op$block_scaled_dot has 2 operands", operands=(LHS, RHS)),),
    "evrf044_factors": (
        dot("[NCC_EVRF044]", operands=(array(2, 8, 16, dtype=jnp.float8_e4m3fn), RHS, LHS_SCALE, RHS_SCALE)),
        dot("[NCC_EVRF044]", operands=(LHS, array(2, 4, 16, dtype=jnp.uint16), LHS_SCALE, RHS_SCALE)),
    ),
    "evrf045_output": (
        dot("[NCC_EVRF045] the result is f16[2,8,4]", results=(array(2, 8, 4, dtype=jnp.float16),)),
        dot("[NCC_EVRF045]", results=(PRODUCT, PRODUCT)),
    ),
    "evrf046_lhs_rank": (
        dot(
            "[NCC_EVRF046] lhs is u32[16], of rank 1",
            config={
                "lhs_batch_dimensions": [],
                "rhs_batch_dimensions": [],
                "lhs_contracting_dimensions": [0],
                "rhs_contracting_dimensions": [2],
            },
            operands=(u32(16), RHS, u8(2), RHS_SCALE),
        ),
    ),
    "evrf047_rhs_rank": (
        dot(
            "[NCC_EVRF047] rhs is u32[16], of rank 1",
            config={"lhs_batch_dimensions": [], "rhs_batch_dimensions": [], "rhs_contracting_dimensions": [0]},
            operands=(LHS, u32(16), LHS_SCALE, u8(2)),
        ),
    ),
    "evrf048_batch": (
        dot("[NCC_EVRF048] the batch dimensions differ", config={"rhs_batch_dimensions": []}),
        dot("[NCC_EVRF048] the batch dimensions differ", operands=(LHS, u32(3, 4, 16), LHS_SCALE, u8(3, 4, 2))),
    ),
    "evrf049_config": (
        dot("[NCC_EVRF049] backend_config is not a JSON object: none", config="none"),
        dot("[NCC_EVRF049] backend_config key 'lhs_batch_dimensions' is 0", config={"lhs_batch_dimensions": 0}),
        dot(
            "[NCC_EVRF049] backend_config key 'lhs_contracting_dimensions' is [\"2\"]",
            config={"lhs_contracting_dimensions": ["2"]},
        ),
        dot("[NCC_EVRF049] backend_config key 'element_dtype' is null", config={"element_dtype": None}),
    ),
    "evrf050_contracting_size": (
        dot(
            "[NCC_EVRF050] the contracting sizes differ: 16 in lhs", operands=(LHS, u32(2, 4, 8), LHS_SCALE, RHS_SCALE)
        ),
        dot("[NCC_EVRF050] the contracting sizes differ: 8 in lhs", config={"lhs_contracting_dimensions": [1]}),
    ),
    "evrf051_target": (
        quantize(
            (
                "[NCC_EVRF051] MX quantize needs core_v4 and the target is trn2 (core_v3)",
                "[NCC_EVRF051] float8_e4m3fn needs trn3 or newer",
            )
        ),
        quantize("[NCC_EVRF051] MX quantize needs core_v4", config={"dtype": "float8_e5m2"}),
    ),
    "evrf053_contracted_batch": (
        dot(
            "[NCC_EVRF053] a contracting dimension is also a batch dimension: lhs [0], rhs [0]",
            config={"lhs_contracting_dimensions": [0], "rhs_contracting_dimensions": [0]},
        ),
    ),
    "evrf054_batch_range": (
        dot(
            "[NCC_EVRF054] batch dimensions out of range: lhs [-1], rhs [-1]",
            config={"lhs_batch_dimensions": [-1], "rhs_batch_dimensions": [-1]},
        ),
        dot("[NCC_EVRF054] batch dimensions out of range: rhs [3]", config={"rhs_batch_dimensions": [3]}),
    ),
    "evrf055_contracting_range": (
        dot(
            "[NCC_EVRF055] contracting dimensions out of range: lhs [3]",
            config={"lhs_contracting_dimensions": [3]},
        ),
    ),
    "evrf057_tuple": (
        quantize("[NCC_EVRF057] the result has 1 parts", results=(DATA,)),
        quantize("[NCC_EVRF057] the result has 3 parts", results=(DATA, SCALE, SCALE)),
    ),
    "evrf058_divisibility": (
        quantize(
            "[NCC_EVRF058] the quantized dimension has size 6",
            operands=(array(4, 6),),
            results=(u32(4, 1), u8(4, 1)),
        ),
        quantize(
            "[NCC_EVRF058] the quantized dimension has size 33",
            config={"dim": -2},
            operands=(array(33, 4),),
            results=(u32(8, 4), u8(2, 4)),
        ),
    ),
    "several_at_once": (
        quantize(
            (
                "[NCC_EVRF036] backend_config key 'dim' is \"1\"",
                "[NCC_EVRF039] block_size is 64",
                "[NCC_EVRF040] scale_method is ''",
                "[NCC_EVRF041] the operand's element type is f32",
                "[NCC_EVRF042] dtype is missing",
                "[NCC_EVRF042] result 0, the data, has element type s8",
                "[NCC_EVRF057] the result has 1 parts",
            ),
            config='{"dim": "1", "block_size": 64, "scale_method": ""}',
            operands=(array(4, 64, dtype=jnp.float32),),
            results=(array(4, 16, dtype=jnp.int8),),
        ),
    ),
}

OPTIONS = {"evrf051_target": "--target=trn2"}
"""Further flags of the fixtures that need one."""

"""Pass `legalize-scaled-matmul`: targets, metadata, and both passes in either order."""

import json
from typing import Any

import pytest

from lowering import Format, LegalizeQuantizeMx, LegalizeScaledMatmul, Pass, read_module, run_passes, write_module
from tests.lowering.tools import CONFIG_TEXT, quote


def dot(config: str | None, result: str = "2x8x4xf32", target: str = "__op$block_scaled_dot") -> str:
    attributes = "" if config is None else f"backend_config = {quote(config)}"
    types = "tensor<2x8x16xui32>, tensor<2x4x16xui32>, tensor<2x8x2xui8>, tensor<2x4x2xui8>"
    return f"""\
func.func @main(%a: tensor<2x8x16xui32>, %b: tensor<2x4x16xui32>, %s: tensor<2x8x2xui8>, %t: tensor<2x4x2xui8>)
    -> tensor<{result}> {{
  %0 = stablehlo.custom_call @{target}(%a, %b, %s, %t) {{{attributes}}} : ({types}) -> tensor<{result}>
  return %0 : tensor<{result}>
}}
"""


def config(**values: Any) -> str:
    return json.dumps({"scaled_dot_backend_config": values})


BATCHED = {"lhs_batch_dimensions": [0], "rhs_batch_dimensions": [0]}


@pytest.mark.parametrize(
    ("text", "target", "lists"),
    [
        (dot(config(**BATCHED, element_dtype="float8_e4m3fn")), "e4m3fn_e4m3fn_f32", "{0}, {0}, {}, {}"),
        (dot(config(**BATCHED, element_dtype="float8_e5m2")), "e5m2_e5m2_f32", "{0}, {0}, {}, {}"),
        (
            dot(
                config(
                    **BATCHED,
                    element_dtype="float8_e5m2",
                    lhs_contracting_dimensions=[-1],
                    rhs_contracting_dimensions=[2],
                ),
                "2x8x4xbf16",
            ),
            "e5m2_e5m2_bf16",
            "{0}, {0}, {2}, {2}",
        ),
        (dot("None"), "e5m2_e5m2_f32", "{}, {}, {}, {}"),
        (dot(None), "e5m2_e5m2_f32", "{}, {}, {}, {}"),
    ],
)
def test_target_and_metadata(text: str, target: str, lists: str) -> None:
    module = read_module(text)
    run_passes(module, [LegalizeScaledMatmul()])
    lines = write_module(module, Format.HLO_TEXT).decode().splitlines()
    (constant,) = [line.strip() for line in lines if " constant(" in line]
    assert constant.endswith(f"constant(( {lists} ))")
    (call,) = [line.strip() for line in lines if "custom-call(" in line]
    assert f"custom-call(%Arg_0.1, %Arg_1.1, %Arg_2.1, %Arg_3.1, {constant.split()[0]})" in call
    assert f'custom_call_target="ScaledMatmul_{target}"' in call


def test_configuration_is_kept_byte_for_byte() -> None:
    text = '{ "scaled_dot_backend_config" : {"element_dtype":"float8_e5m2", "dequantize_type": "F32"} }'
    module = read_module(dot(text))
    warnings, _ = run_passes(module, [LegalizeScaledMatmul()])
    assert [d.code for d in warnings] == ["MX003"]
    assert f"backend_config={text}" in write_module(module, Format.HLO_TEXT).decode()


def test_dictionary_configuration_becomes_canonical_text() -> None:
    dictionary = (
        "api_version = 4 : i32, backend_config = {scaled_dot_backend_config = {rhs_batch_dimensions = array<i64: 0>, "
        'lhs_batch_dimensions = [0], element_dtype = "float8_e4m3fn", '
        "lhs_contracting_dimensions = dense<2> : tensor<1xi64>}}"
    )
    module = read_module(dot("").replace('backend_config = ""', dictionary))
    run_passes(module, [LegalizeScaledMatmul()])
    text = write_module(module, Format.HLO_TEXT).decode()
    assert "constant(( {0}, {0}, {2}, {} ))" in text
    assert 'custom_call_target="ScaledMatmul_e4m3fn_e4m3fn_f32"' in text
    canonical = (
        '{"scaled_dot_backend_config":{"element_dtype":"float8_e4m3fn","lhs_batch_dimensions":[0],'
        '"lhs_contracting_dimensions":[2],"rhs_batch_dimensions":[0]}}'
    )
    assert f"backend_config={canonical}" in text
    assert "api_version" not in text


def test_other_targets_are_left_alone() -> None:
    module = read_module(dot(None, target="__op$block_scaled_dot2"))
    _, (report,) = run_passes(module, [LegalizeScaledMatmul()])
    assert (report.rewritten, module.changed) == (0, False)


BOTH = f"""\
func.func @main(%x: tensor<8x64xbf16>) -> tensor<8x8xf32> {{
  %0:2 = stablehlo.custom_call @QuantizeMX(%x) {{backend_config = {quote(CONFIG_TEXT)}}}
    : (tensor<8x64xbf16>) -> (tensor<8x16xui32>, tensor<8x2xui8>)
  %1 = stablehlo.custom_call @__op$block_scaled_dot(%0#0, %0#0, %0#1, %0#1)
    {{backend_config = {quote(config(element_dtype="float8_e4m3fn"))}}}
    : (tensor<8x16xui32>, tensor<8x16xui32>, tensor<8x2xui8>, tensor<8x2xui8>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}}
"""


def test_order_does_not_matter() -> None:
    orders: list[list[Pass]] = [
        [LegalizeQuantizeMx(), LegalizeScaledMatmul()],
        [LegalizeScaledMatmul(), LegalizeQuantizeMx()],
        [LegalizeQuantizeMx(), LegalizeScaledMatmul(), LegalizeQuantizeMx(), LegalizeScaledMatmul()],
    ]
    outcomes = set()
    for passes in orders:
        module = read_module(BOTH)
        run_passes(module, passes)
        outcomes.add(write_module(module, Format.STABLEHLO_TEXT))
    (text,) = outcomes
    assert text.count(b"@QuantizeMX_bf16_e4m3fn(") == 1
    assert text.count(b"@ScaledMatmul_e4m3fn_e4m3fn_f32(") == 1

"""Attributes that no frontend writes: diagnostics that say what is wrong, never another exception."""

import json

import pytest

from lowering import (
    LegalizeQuantizeMx,
    LegalizeScaledMatmul,
    LoweringError,
    Module,
    execute,
    explain_module,
    inspect_module,
    read_module,
    run_passes,
)
from lowering.running import compare, random_arguments
from tests.lowering.tools import CONFIG, CONFIG_TEXT, quote, stablehlo

NESTED = 950
DEEP = "<nested more than 100 deep>: not valid JSON: invalid character"
GOOD = f"api_version = 2 : i32, backend_config = {quote(CONFIG_TEXT)}"


@pytest.mark.parametrize(
    ("attributes", "code", "cause"),
    [
        ("mhlo.backend_config = {dim = " + "[" * NESTED + "]" * NESTED + "}", "NCC_EVRF036", f"key 'dim' is {DEEP}"),
        ("mhlo.backend_config = {x = " + "[" * NESTED + "]" * NESTED + "}", "NCC_EVRF036", f"key 'x' is {DEEP}"),
        (
            "api_version = 4 : i32, backend_config = {dim = " + "{a = " * NESTED + "1" + "}" * NESTED + "}",
            "NCC_EVRF036",
            f"key 'dim' is {DEEP}",
        ),
        ("mhlo.backend_config = {dim = dense<1> : tensor<1xi4>}", "NCC_EVRF036", "key 'dim' is \"dense<1>"),
        ("mhlo.backend_config = {dim = dense<1> : tensor<1xi128>}", "NCC_EVRF036", "key 'dim' is \"dense<1>"),
        ("mhlo.backend_config = {dim = dense<0> : tensor<1xi0>}", "NCC_EVRF036", "key 'dim' is \"dense<0>"),
        ("mhlo.backend_config = {dim = dense<1> : tensor<999999999xi64>}", "NCC_EVRF036", "key 'dim' is \"dense<1>"),
        ("mhlo.backend_config = {dim = 1 : i20000}", "NCC_EVRF036", "key 'dim' is \"1 : i20000\""),
        (f'{GOOD}, mhlo.frontend_attributes = "abc"', "MX002", 'the attribute mhlo.frontend_attributes is "abc"'),
        (f"{GOOD}, mhlo.frontend_attributes = [1]", "MX002", "the attribute mhlo.frontend_attributes is [1"),
    ],
    ids=range(10),
)
def test_odd_attributes_are_diagnosed(attributes: str, code: str, cause: str) -> None:
    text = stablehlo(None, attributes=attributes)
    with pytest.raises(LoweringError) as e:
        run_passes(read_module(text), [LegalizeQuantizeMx(), LegalizeScaledMatmul()])
    assert e.value.diagnostics[0].code == code
    assert cause in e.value.diagnostics[0].cause
    module = read_module(text)
    with pytest.raises(LoweringError, match=code):
        execute(module, random_arguments(module, 0))


def test_deeply_nested_result_is_diagnosed() -> None:
    deep = "tuple<" * 600 + "tensor<4xf32>" + ">" * 600
    call = f"%0 = stablehlo.custom_call @QuantizeMX(%x) : (tensor<4x64xbf16>) -> ({deep})"
    module = read_module(f"func.func @main(%x: tensor<4x64xbf16>) {{\n{call}\nreturn }}")
    assert "NCC_EVRF057" in [d.code for d in explain_module(module)]


@pytest.mark.parametrize("constant", ["dense<1> : tensor<i4>", "dense<1> : tensor<2x2xi64>"])
def test_odd_metadata_is_no_metadata(constant: str) -> None:
    kind = constant.partition(" : ")[2]
    module = read_module(f"""
func.func @main(%x: tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>) {{
  %c = stablehlo.constant {constant}
  %t = stablehlo.tuple %c : tuple<{kind}>
  %0:2 = stablehlo.custom_call @QuantizeMX_bf16_e4m3fn(%t, %x) : (tuple<{kind}>, tensor<4x64xbf16>)
    -> (tensor<4x16xui32>, tensor<4x2xui8>)
  return %0#0, %0#1 : tensor<4x16xui32>, tensor<4x2xui8>
}}""")
    assert [(row.axis, row.verdict) for row in inspect_module(module)] == [("-", "legalized")]
    with pytest.raises(LoweringError, match="MX007"):
        execute(module, random_arguments(module, 0))


def test_function_whose_name_is_not_utf8() -> None:
    module = read_module('func.func private @"\\FFQ"()\nfunc.func @main() { return }')
    with pytest.raises(LoweringError, match="MX002"):
        execute(module, [])


def with_rule(config_rule: str | None, attribute: str | None) -> Module:
    config = CONFIG if config_rule is None else {**CONFIG, "mx_scale_rule": config_rule}
    said = "" if attribute is None else f", mhlo.frontend_attributes = {{mx_scale_rule = {attribute}}}"
    return read_module(stablehlo(json.dumps(config), attributes="api_version = 2 : i32" + said))


@pytest.mark.parametrize(("configured", "attribute"), [("NKI", None), (None, '"NKI"'), ("NKI", '"NKI"')])
@pytest.mark.parametrize("validate", [True, False])
def test_scale_rule_of_attribute_or_configuration_is_kept(
    configured: str | None, attribute: str | None, validate: bool
) -> None:
    module = with_rule(configured, attribute)
    before = execute(module, random_arguments(module, 0))
    run_passes(module, [LegalizeQuantizeMx(validate=validate)])
    assert 'mhlo.frontend_attributes = {mx_scale_rule = "NKI"}' in str(module.mlir)
    assert compare(before, execute(module, random_arguments(module, 0))) == []


@pytest.mark.parametrize(
    ("configured", "attribute", "cause"),
    [
        ("nki", None, "mx_scale_rule is 'nki'"),
        (None, '"nki"', "mx_scale_rule is 'nki'"),
        (None, "1", "frontend attribute mx_scale_rule is 1 : i64, not a string"),
        ("NKI", '"EMAX"', "frontend attribute mx_scale_rule is 'EMAX' and backend_config says 'NKI'"),
    ],
)
def test_scale_rule_that_cannot_be_told(configured: str | None, attribute: str | None, cause: str) -> None:
    module = with_rule(configured, attribute)
    with pytest.raises(LoweringError) as e:
        run_passes(module, [LegalizeQuantizeMx()])
    assert [(d.code, d.cause) for d in e.value.diagnostics] == [("MX006", cause)]

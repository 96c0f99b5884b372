"""Pass `legalize-quantize-mx`: targets, metadata, what is kept, where calls are found, what stops it."""

import json

import pytest

from lowering import Format, LegalizeQuantizeMx, LoweringError, Target, inspect_module, read_module, run_passes
from lowering import write_module as write
from tests.lowering.tools import CONFIG, hlo, stablehlo


def legalized(text: str, fmt: Format = Format.STABLEHLO_TEXT, **options: object) -> str:
    module = read_module(text)
    run_passes(module, [LegalizeQuantizeMx(**options)])  # type: ignore[arg-type]
    return write(module, fmt).decode()


def config(**changes: object) -> str:
    return json.dumps({k: v for k, v in {**CONFIG, **changes}.items() if v is not None})


@pytest.mark.parametrize("source", ["bf16", "f16"])
@pytest.mark.parametrize(
    ("dtype", "container", "tag"),
    [
        ("float8_e4m3fn", "ui32", "e4m3fn"),
        ("float8_e5m2", "ui32", "e5m2"),
        ("float4_e2m1fn", "ui16", "e2m1fn"),
    ],
)
def test_target(source: str, dtype: str, container: str, tag: str) -> None:
    text = stablehlo(config(dtype=dtype), operand=f"4x64x{source}", data=f"4x16x{container}")
    found = legalized(text, allow_fp4=True)
    assert f"@QuantizeMX_{source}_{tag}(" in found
    assert 'backend_config = ""' in found
    assert "api_version" not in found  # 1 is StableHLO's default


@pytest.mark.parametrize(
    ("operand", "dim", "data", "scale", "dims", "axis"),
    [
        ("64xbf16", 0, "16xui32", "2xui8", "dense<64> : tensor<1xi64>", 0),
        ("64xbf16", None, "16xui32", "2xui8", "dense<64> : tensor<1xi64>", 0),
        ("64x4xbf16", None, "16x4xui32", "2x4xui8", "dense<[64, 4]> : tensor<2xi64>", 0),
        ("4x64xbf16", -1, "4x16xui32", "4x2xui8", "dense<[4, 64]> : tensor<2xi64>", 1),
        ("2x64x4xbf16", -2, "2x16x4xui32", "2x2x4xui8", "dense<[2, 64, 4]> : tensor<3xi64>", 1),
        ("2x3x4x36xf16", 3, "2x3x4x9xui32", "2x3x4x2xui8", "dense<[2, 3, 4, 36]> : tensor<4xi64>", 3),
        ("0x32xbf16", 1, "0x8xui32", "0x1xui8", "dense<[0, 32]> : tensor<2xi64>", 1),
        ("4x0xbf16", 1, "4x0xui32", "4x0xui8", "dense<[4, 0]> : tensor<2xi64>", 1),
        ("4x64xbf16", 1, "4x16xui32", "4x2xf8E8M0FNU", "dense<[4, 64]> : tensor<2xi64>", 1),
        ("2147483648x4xbf16", 1, "2147483648x1xui32", "2147483648x1xui8", "dense<[2147483648, 4]> : tensor<2xi64>", 1),
    ],
)
def test_metadata(operand: str, dim: int | None, data: str, scale: str, dims: str, axis: int) -> None:
    lines = legalized(stablehlo(config(dim=dim), operand=operand, data=data, scale=scale)).splitlines()
    at = next(i for i, line in enumerate(lines) if "@QuantizeMX_" in line)
    constants = [line.partition(" = ")[2] for line in lines[at - 5 : at - 1]]
    assert constants == [
        f"stablehlo.constant {dims}",
        f"stablehlo.constant dense<{axis}> : tensor<i64>",
        "stablehlo.constant dense<32> : tensor<i64>",
        "stablehlo.constant dense<0> : tensor<i64>",
    ]
    names = [line.split()[0] for line in lines[at - 5 : at - 1]]
    assert f"stablehlo.tuple {', '.join(names)} :" in lines[at - 1]
    assert f"({lines[at - 1].split()[0]}, %arg0)" in lines[at]
    assert f"-> (tensor<{data}>, tensor<{scale}>)" in lines[at]


def test_hlo_metadata_is_one_tuple_constant() -> None:
    found = legalized(hlo(), Format.HLO_TEXT)
    (constant,) = [line for line in found.splitlines() if " constant(" in line]
    assert " = (s64[2]{0}, s64[], s64[], s64[]) constant(( {4, 64}, 1, 32, 0 ))" in constant
    (call,) = [line for line in found.splitlines() if "custom-call(" in line]
    assert f"custom-call({constant.split()[0]}, %x.1)" in call
    assert "backend_config" not in call
    assert "api_version" not in call


def test_what_is_kept() -> None:
    text = stablehlo(
        attributes=(
            'api_version = 2 : i32, mhlo.sharding = "{replicated}", '
            'mhlo.frontend_attributes = {mx_scale_rule = "NKI", other = "kept"}, '
            "operand_layouts = [dense<[1, 0]> : tensor<2xindex>], "
            "result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]"
        )
    ).replace("tensor<4x2xui8>)\n", 'tensor<4x2xui8>) loc("model.py":7:3)\n')
    found = legalized(text)
    assert 'mhlo.frontend_attributes = {mx_scale_rule = "NKI", other = "kept"}' in found
    assert 'mhlo.sharding = "{replicated}"' in found
    assert "layouts" not in found
    assert 'loc("model.py":7:3)' in found


@pytest.mark.parametrize("fmt", [Format.STABLEHLO_TEXT, Format.HLO_TEXT])
def test_twice_changes_nothing(fmt: Format) -> None:
    once = legalized(hlo(), fmt)
    assert legalized(once, fmt) == once


NESTED = """\
func.func @main(%x: tensor<4x64xbf16>, %n: tensor<i32>) -> tensor<4x16xui32> {
  %zero = stablehlo.constant dense<0> : tensor<4x16xui32>
  %r:2 = stablehlo.while(%i = %n, %acc = %zero) : tensor<i32>, tensor<4x16xui32>
  cond {
    %c = func.call @condition(%x, %i) : (tensor<4x64xbf16>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %b = "stablehlo.case"(%i) ({
      %q:2 = stablehlo.custom_call @QuantizeMX(%x) {backend_config = CONFIG}
        : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)
      stablehlo.return %q#0 : tensor<4x16xui32>
    }, {
      %o = func.call @outer(%x) : (tensor<4x64xbf16>) -> tensor<4x16xui32>
      stablehlo.return %o : tensor<4x16xui32>
    }) : (tensor<i32>) -> tensor<4x16xui32>
    stablehlo.return %i, %b : tensor<i32>, tensor<4x16xui32>
  }
  return %r#1 : tensor<4x16xui32>
}
func.func private @outer(%x: tensor<4x64xbf16>) -> tensor<4x16xui32> {
  %o = func.call @inner(%x) : (tensor<4x64xbf16>) -> tensor<4x16xui32>
  return %o : tensor<4x16xui32>
}
func.func private @inner(%x: tensor<4x64xbf16>) -> tensor<4x16xui32> {
  %t = stablehlo.custom_call @QuantizeMX(%x) {backend_config = CONFIG}
    : (tensor<4x64xbf16>) -> tuple<tensor<4x16xui32>, tensor<4x2xui8>>
  %q = stablehlo.get_tuple_element %t[0] : (tuple<tensor<4x16xui32>, tensor<4x2xui8>>) -> tensor<4x16xui32>
  return %q : tensor<4x16xui32>
}
func.func private @condition(%x: tensor<4x64xbf16>, %i: tensor<i32>) -> tensor<i1> {
  %q:2 = stablehlo.custom_call @QuantizeMX(%x) {backend_config = CONFIG}
    : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)
  %s = stablehlo.slice %q#1 [0:1, 0:1] : (tensor<4x2xui8>) -> tensor<1x1xui8>
  %v = stablehlo.reshape %s : (tensor<1x1xui8>) -> tensor<ui8>
  %c = stablehlo.convert %v : (tensor<ui8>) -> tensor<i1>
  return %c : tensor<i1>
}
""".replace("CONFIG", '"{\\"dim\\":1,\\"dtype\\":\\"float8_e5m2\\"}"')


def test_calls_are_found_wherever_they_are() -> None:
    for fmt in (Format.STABLEHLO_TEXT, Format.HLO_TEXT):
        found = legalized(NESTED, fmt)
        assert found.count("QuantizeMX_bf16_e5m2") == 3
        assert "QuantizeMX(" not in found
        assert 'target="QuantizeMX"' not in found
        # The same module read as HLO: no branch or loop body is seen twice.
        rows = inspect_module(read_module(found), target=Target.TRN3, allow_fp4=False)
        assert [row.verdict for row in rows] == ["legalized"] * 3


def test_nothing_is_changed_when_one_call_is_bad() -> None:
    module = read_module(NESTED.replace('"{\\"dim\\":1,', '"{\\"dim\\":7,', 1))
    before = write(module, Format.STABLEHLO_TEXT)
    with pytest.raises(LoweringError) as caught:
        run_passes(module, [LegalizeQuantizeMx()])
    assert [d.code for d in caught.value.diagnostics] == ["NCC_EVRF038"]
    assert write(module, Format.STABLEHLO_TEXT) == before
    assert not module.changed


def test_one_bad_call_hides_no_other() -> None:
    module = read_module(NESTED.replace('"{\\"dim\\":1,', '"{\\"dim\\":7,'))
    with pytest.raises(LoweringError) as caught:
        run_passes(module, [LegalizeQuantizeMx()])
    assert [(d.code, d.location.line if d.location else 0) for d in caught.value.diagnostics] == [
        ("NCC_EVRF038", 9),
        ("NCC_EVRF038", 25),
        ("NCC_EVRF038", 31),
    ]


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        (stablehlo(None), "bf16_e4m3fn"),
        (stablehlo("no json"), "bf16_e4m3fn"),
        (stablehlo(config(dtype="float4_e2m1fn")), "bf16_e4m3fn"),
        (stablehlo(config(dtype="float8_e5m2"), operand="4x64xf32"), "f16_e5m2"),
        (stablehlo(config(block_size=16)), "bf16_e4m3fn"),
    ],
)
def test_without_validation_a_malformed_call_is_tagged_silently(text: str, tag: str) -> None:
    with pytest.raises(LoweringError):
        legalized(text)
    assert f"@QuantizeMX_{tag}(" in legalized(text, validate=False)


def test_without_validation_a_call_without_operand_is_still_an_error() -> None:
    text = hlo(operands="").replace("ROOT quantized", "quantized").replace("\n}", "\n  ROOT r = bf16[4,64] copy(x)\n}")
    text = text.replace("ROOT r = bf16[4,64] copy(x)", "ROOT r = (u32[4,16], u8[4,2]) tuple(g, h)").replace(
        "ROOT r",
        "g = u32[4,16] get-tuple-element(quantized), index=0\n  "
        "h = u8[4,2] get-tuple-element(quantized), index=1\n  ROOT r",
    )
    with pytest.raises(LoweringError, match="NCC_EVRF037"):
        legalized(text, validate=False)


def test_diagnostic_names_instruction_shapes_and_source() -> None:
    text = hlo(
        config(dtype="float8"),
        operand="f32[4,64]",
        extra=', metadata={op_name="q" source_file="model.py" source_line=12}',
    )
    with pytest.raises(LoweringError) as caught:
        legalized(text)
    first, second = caught.value.diagnostics
    assert (first.code, second.code) == ("NCC_EVRF041", "NCC_EVRF042")
    assert str(first) == (
        "[ERROR] [NCC_EVRF041] the operand's element type is f32 - convert the operand to bf16 or f16 before the call\n"
        "    quantized = (u32[4,16], u8[4,2]) QuantizeMX(f32[4,64]), at model.py:12"
    )


def test_dynamic_dimensions_are_refused() -> None:
    with pytest.raises(LoweringError) as caught:
        legalized(stablehlo(operand="?x64xbf16", data="?x16xui32", scale="?x2xui8"))
    assert [d.code for d in caught.value.diagnostics] == ["MX004"]
    with pytest.raises(LoweringError, match="MX004"):
        legalized(stablehlo(operand="?x64xbf16", data="?x16xui32", scale="?x2xui8"), validate=False)


def test_unknown_keys_and_rules() -> None:
    module = read_module(stablehlo(config(extra=1)))
    warnings, reports = run_passes(module, [LegalizeQuantizeMx()])
    assert [(d.severity, d.code) for d in warnings] == [("warning", "MX003")]
    assert [(r.name, r.rewritten) for r in reports] == [("legalize-quantize-mx", 1)]
    with pytest.raises(LoweringError, match="mx_scale_rule is 'FLOOR'"):
        legalized(stablehlo(attributes='mhlo.frontend_attributes = {mx_scale_rule = "FLOOR"}'))


SHARED = """\
func.func @main(%x: tensor<4x64xbf16>, %i: tensor<i32>) -> (tensor<4x2xui8>, tensor<4x2xui8>) {
  %a:2 = CALL
  %b = "stablehlo.case"(%i) ({
    %c:2 = CALL
    %d:2 = CALL
    stablehlo.return %d#1 : tensor<4x2xui8>
  }, {
    %e:2 = CALL
    stablehlo.return %e#1 : tensor<4x2xui8>
  }) : (tensor<i32>) -> tensor<4x2xui8>
  %f:2 = CALL
  return %b, %f#1 : tensor<4x2xui8>, tensor<4x2xui8>
}
""".replace(
    "CALL",
    'stablehlo.custom_call @QuantizeMX(%x) {backend_config = "{\\"dim\\":1,\\"dtype\\":\\"float8_e5m2\\"}"} '
    ": (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)",
)


def test_calls_of_a_block_share_constants_and_no_others_do() -> None:
    found = legalized(SHARED)
    assert found.count("stablehlo.tuple") == 5
    # The entry before the branches, each branch, and the entry after them.
    assert found.count("stablehlo.constant dense<[4, 64]>") == 4

"""Every form in which modules are passed around is recognised by content, and a round trip keeps what can be kept."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend import mlir as extend_mlir

import jax_mx
from lowering import Format, InputForm, LoweringError, _compat, read_module, recognise, write_module
from tests.lowering.tools import hlo, mx_opt, stablehlo


def exported() -> bytes:
    with jax_mx.lowering_mode("custom_call"):
        export = jax.export.export(
            jax.jit(lambda x: jax_mx.quantize_mx(x)), disabled_checks=jax_mx.EXPORT_DISABLED_CHECKS, platforms=["cpu"]
        )(jax.ShapeDtypeStruct((4, 64), jnp.bfloat16))
    return bytes(export.serialize())


def portable_artifact() -> bytes:
    module = read_module(stablehlo())
    with module.context:
        return bytes(extend_mlir.serialize_portable_artifact(str(module.mlir), "1.0.0"))


FORMS: dict[InputForm, Callable[[], bytes]] = {
    InputForm.HLO_TEXT: lambda: hlo().encode(),
    InputForm.HLO_PROTO: lambda: write_module(read_module(hlo()), Format.HLO_PROTO),
    InputForm.STABLEHLO_TEXT: lambda: stablehlo().encode(),
    InputForm.BYTECODE: lambda: write_module(read_module(stablehlo()), Format.BYTECODE),
    InputForm.PORTABLE_ARTIFACT: portable_artifact,
    InputForm.EXPORT: exported,
}


@pytest.mark.parametrize("form", FORMS)
def test_form_is_recognised_and_read(form: InputForm) -> None:
    data = FORMS[form]()
    assert recognise(data) is form
    result = mx_opt("-", "--passes=legalize-quantize-mx", "--emit=stablehlo", stdin=data)
    assert (result.status, result.stderr) == (0, "")
    assert result.text.count("@QuantizeMX_bf16_e4m3fn(") == 1


def test_text_and_bytearrays_are_read() -> None:
    for data in (stablehlo(), bytearray(stablehlo().encode())):
        assert recognise(data) is InputForm.STABLEHLO_TEXT
        assert write_module(read_module(data), Format.STABLEHLO_TEXT) == write_module(
            read_module(stablehlo().encode()), Format.STABLEHLO_TEXT
        )


@pytest.mark.parametrize("data", [Path("model.hlo"), None, 7, ["HloModule"], io.BytesIO(b"HloModule m")])
def test_what_is_no_content_is_refused(data: Any) -> None:
    for use in (read_module, recognise):
        with pytest.raises(TypeError, match=f"data is a {type(data).__name__}, wanted bytes or str: the module itself"):
            use(data)


def test_half_a_surrogate_pair_is_unreadable() -> None:
    with pytest.raises(LoweringError, match="MX001"):
        read_module("HloModule \ud800")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("emit", Format)
def test_every_form_is_written_in_every_form(form: InputForm, emit: Format) -> None:
    written = write_module(read_module(FORMS[form]()), emit)
    assert (
        recognise(written)
        == {
            Format.HLO_TEXT: InputForm.HLO_TEXT,
            Format.HLO_PROTO: InputForm.HLO_PROTO,
            Format.STABLEHLO_TEXT: InputForm.STABLEHLO_TEXT,
            Format.BYTECODE: InputForm.BYTECODE,
        }[emit]
    )
    assert "QuantizeMX" in write_module(read_module(written), Format.STABLEHLO_TEXT).decode()


def test_export_for_several_platforms() -> None:
    """The call is in a branch of a case, the inline operations in the other."""
    blob = jax.export.export(
        jax.jit(lambda x: jax_mx.quantize_mx(x)),
        disabled_checks=jax_mx.EXPORT_DISABLED_CHECKS,
        platforms=["cpu", "neuron"],
    )(jax.ShapeDtypeStruct((4, 64), jnp.bfloat16)).serialize()
    result = mx_opt("-", "--passes=legalize-quantize-mx", stdin=bytes(blob))
    assert (result.status, result.stderr) == (0, "")
    branches = result.text.partition("stablehlo.case")[2]
    assert branches.count("@QuantizeMX_bf16_e4m3fn(") == 1


def test_comments_before_the_module_do_not_hide_its_form() -> None:
    assert recognise(b"// a comment\n/* another\n one */\nHloModule m") is InputForm.HLO_TEXT
    assert recognise(b"// HloModule\nmodule {}") is InputForm.STABLEHLO_TEXT


PLAIN_HLO = """\
HloModule plain, input_output_alias={ {0}: (1, {}, may-alias) }, \
entry_computation_layout={(bf16[4,64]{0,1}, f32[4,16]{1,0})->(f32[4,16]{1,0}, f32[4,16]{0,1})}

ENTRY %main (left: bf16[4,64], right: f32[4,16]) -> (f32[4,16], f32[4,16]) {
  %left = bf16[4,64]{0,1} parameter(0), sharding={devices=[2,1]<=[2]}
  %right = f32[4,16]{1,0} parameter(1), sharding={replicated}
  %other = f32[4,16]{1,0} custom-call(%left, %right), custom_call_target="SomethingElse", \
api_version=API_VERSION_STATUS_RETURNING, frontend_attributes={key="value"}, \
metadata={op_type="op" op_name="jit(f)/other" source_file="model.py" source_line=12}, \
backend_config={ "kept" : [1,2], "byte for byte":"\\u00e9" }
  %negated = f32[4,16]{1,0} negate(%other), metadata={op_name="jit(f)/neg" source_file="model.py" source_line=13}
  ROOT %out = (f32[4,16]{1,0}, f32[4,16]{0,1}) tuple(%negated, %other)
}
"""


def test_untouched_hlo_is_written_as_it_came() -> None:
    printed = _compat.print_hlo(_compat.parse_hlo_text(PLAIN_HLO))
    result = mx_opt("-", "--passes=legalize-quantize-mx,legalize-scaled-matmul", stdin=PLAIN_HLO.encode())
    assert (result.status, result.text.rstrip()) == (0, printed.rstrip())


def test_round_trip_through_stablehlo_keeps_what_jaxlib_keeps() -> None:
    module = read_module(PLAIN_HLO)
    module.mark_changed()
    text = write_module(module, Format.HLO_TEXT).decode()
    for kept in (
        "input_output_alias={ {0}: (1, {}, may-alias) }",
        "entry_computation_layout={(bf16[4,64]{0,1}, f32[4,16]{1,0})->(f32[4,16]{1,0}, f32[4,16]{0,1})}",
        "sharding={devices=[2,1]<=[2]}",
        "sharding={replicated}",
        'frontend_attributes={key="value"}',
        "api_version=API_VERSION_STATUS_RETURNING",
        'backend_config={ "kept" : [1,2], "byte for byte":"\\u00e9" }',
        'source_file="model.py" source_line=12',
        'source_file="model.py" source_line=13',
    ):
        assert kept in text
    assert "mx_instruction_name" not in text


def test_stablehlo_without_locations_gets_none() -> None:
    for emit in (Format.STABLEHLO_TEXT, Format.HLO_TEXT):
        text = write_module(read_module(stablehlo()), emit).decode()
        assert "loc(" not in text
        assert "source_file" not in text


def test_splat_and_tuple_constants_survive_hlo() -> None:
    text = """\
HloModule m
ENTRY e {
  x = bf16[64,64] parameter(0)
  c = (s64[2], (s64[], s64[3]), s64[0]) constant(({64,64}, (1, {7,7,7}), {}))
  g = s64[2] get-tuple-element(c), index=0
  ROOT r = (s64[2], bf16[64,64]) tuple(g, x)
}
"""
    module = read_module(text)
    printed = write_module(module, Format.STABLEHLO_TEXT).decode()
    for constant in (
        "dense<64> : tensor<2xi64>",
        "dense<1> : tensor<i64>",
        "dense<7> : tensor<3xi64>",
        "tensor<0xi64>",
    ):
        assert constant in printed


def test_composite_in_hlo_is_read_as_a_call() -> None:
    text = (
        "HloModule m\n"
        "d { p = bf16[4,64] parameter(0)\n a = u32[] constant(0)\n b = u32[4,16] broadcast(a), dimensions={}\n"
        " c = u8[] constant(0)\n e = u8[4,2] broadcast(c), dimensions={}\n"
        " ROOT t = (u32[4,16], u8[4,2]) tuple(b, e) }\n"
        "ENTRY main { x = bf16[4,64] parameter(0)\n"
        " ROOT r = (u32[4,16], u8[4,2]) call(x), to_apply=d, is_composite=true, frontend_attributes={"
        'composite.attributes={dim = 1 : i64, dtype = "float8_e5m2"},composite.name="NAME",composite.version="0"} }\n'
    )
    result = mx_opt("-", "--passes=legalize-quantize-mx", stdin=text.replace("NAME", "vendor.QuantizeMX").encode())
    assert (result.status, result.text.count("QuantizeMX_bf16_e5m2")) == (0, 1)
    # Any other composite with several results becomes a plain call: jaxlib would make an invalid composite of it.
    other = mx_opt("-", "--emit=stablehlo", stdin=text.replace("NAME", "vendor.other").encode())
    assert other.status == 0
    assert "call @d" in other.text


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "m.hlo is empty"),
        (b"  \n", "m.hlo is empty"),
        (b"HloModule", "looks like HLO text"),
        (b"HloModule m\nENTRY e { ROOT x = f32[2] parameter(0", "looks like HLO text"),
        (b"module {", "looks like StableHLO text"),
        (b"no module at all", "looks like StableHLO text"),
        (b"\x0a\xff\xfe\x00garbage", "looks like HloModuleProto"),
        (b"\x00\x01\x02\xff", "looks like HloModuleProto"),
        (b"ML\xefR", "looks like MLIR bytecode"),
        (b"ML\xefR\x0d\x01StableHLO_v1.0.0\x00", "looks like StableHLO portable artifact"),
        (b"\x18\x00\x00\x00\xff ML\xefR", "looks like jax.export blob"),
        (b"module {}", "the module in m.hlo is empty"),
        (b'func.func @f() { "tosa.add"() : () -> () return }', "looks like StableHLO text"),
    ],
)
def test_unreadable_input_is_a_diagnostic(data: bytes, cause: str) -> None:
    with pytest.raises(LoweringError) as caught:
        read_module(data, "m.hlo")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "MX001"
    assert cause in diagnostic.cause and "m.hlo" in diagnostic.cause
    assert "\n" not in diagnostic.cause


def test_invalid_ir_is_a_diagnostic() -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return }"
    with pytest.raises(LoweringError, match="MX001") as caught:
        read_module(text)
    assert "has 0 operands" in str(caught.value)


def test_replicas_and_partitions_of_hlo_text_are_kept() -> None:
    header = 'HloModule m, replica_count=2, num_partitions=4, frontend_attributes={k=", replica_count=7"}'
    text = hlo().replace("HloModule m", header)
    printed = _compat.print_hlo(_compat.parse_hlo_text(text))
    module = read_module(text)
    assert write_module(module, "hlo").decode().rstrip() == printed.rstrip()
    assert ", replica_count=2, num_partitions=4, frontend_attributes=" in printed
    changed = mx_opt("-", "--passes=legalize-quantize-mx", stdin=text.encode()).text
    assert "QuantizeMX_bf16_e4m3fn" in changed
    assert ", replica_count=2, num_partitions=4" in changed.splitlines()[0]
    assert "replica_count=7" not in changed.splitlines()[0].partition(", frontend_attributes=")[0]
    assert read_module(changed).hlo_counts == ", replica_count=2, num_partitions=4"
    only = hlo().replace("HloModule m", "HloModule m, num_partitions=4")
    assert read_module(only).hlo_counts == ", num_partitions=4"
    assert read_module(hlo()).hlo_counts == ""

"""The pipeline: what one pass erases, no other pass touches."""

from dataclasses import dataclass
from typing import ClassVar

from lowering import Diagnostic, Format, LegalizeQuantizeMx, LegalizeScaledMatmul, Module, Pass, read_module, run_passes
from lowering import write_module as write

# The composite falls back to a function with a product in it, which goes when the composite is legalized.
PRODUCT_IN_A_DECOMPOSITION = """\
func.func @main(%x: tensor<8x64xbf16>) -> (tensor<8x16xui32>, tensor<8x2xui8>) {
  %0:2 = stablehlo.composite "vendor.QuantizeMX" %x {
    composite_attributes = {dim = 1 : i64, dtype = "float8_e4m3fn"}, decomposition = @dec
  } : (tensor<8x64xbf16>) -> (tensor<8x16xui32>, tensor<8x2xui8>)
  return %0#0, %0#1 : tensor<8x16xui32>, tensor<8x2xui8>
}
func.func private @dec(%x: tensor<8x64xbf16>) -> (tensor<8x16xui32>, tensor<8x2xui8>) {
  %a = stablehlo.constant dense<0> : tensor<8x16xui32>
  %b = stablehlo.constant dense<0> : tensor<8x2xui8>
  %z = stablehlo.custom_call @"__op$block_scaled_dot"(%a, %a, %b, %b) {backend_config =
    "{\\22scaled_dot_backend_config\\22:{\\22element_dtype\\22:\\22float8_e4m3fn\\22}}"}
    : (tensor<8x16xui32>, tensor<8x16xui32>, tensor<8x2xui8>, tensor<8x2xui8>) -> tensor<8x8xf32>
  return %a, %b : tensor<8x16xui32>, tensor<8x2xui8>
}
"""


def test_a_pass_may_erase_what_another_has_matched() -> None:
    outputs = []
    for passes in ([LegalizeQuantizeMx(), LegalizeScaledMatmul()], [LegalizeScaledMatmul(), LegalizeQuantizeMx()]):
        module = read_module(PRODUCT_IN_A_DECOMPOSITION)
        _, reports = run_passes(module, passes)
        assert {r.name: r.rewritten for r in reports}["legalize-quantize-mx"] == 1
        outputs.append(write(module, Format.STABLEHLO_TEXT))
    assert outputs[0] == outputs[1]
    assert b"QuantizeMX_bf16_e4m3fn" in outputs[0]
    assert b"ScaledMatmul" not in outputs[0]


@dataclass(frozen=True)
class EraseFunctions:
    """A pass of somebody else's: it erases every private function."""

    name: ClassVar[str] = "erase-functions"
    summary: ClassVar[str] = "Erase private functions."

    def diagnose(self, module: Module) -> list[Diagnostic]:
        return []

    def rewrite(self, module: Module) -> int:
        private = [op for op in module.mlir.body.operations if "sym_visibility" in op.attributes]
        for op in private:
            op.operation.erase()
        return len(private)


def test_a_pass_of_somebody_else_may_erase_calls() -> None:
    call = PRODUCT_IN_A_DECOMPOSITION.partition("func.func private")[2]
    text = f"func.func @main() {{ return }}\nfunc.func private{call}"
    passes: list[Pass] = [EraseFunctions(), LegalizeScaledMatmul()]
    _, reports = run_passes(read_module(text), passes)
    assert [r.rewritten for r in reports] == [1, 0]

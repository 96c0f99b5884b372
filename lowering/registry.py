"""The passes that exist, by name, in the order in which the hardware compiler runs them."""

from lowering.bir.lower_to_bir import LowerToBir
from lowering.legalize_quantize_mx import LegalizeQuantizeMx
from lowering.legalize_scaled_matmul import LegalizeScaledMatmul
from lowering.passes import Pass

PASSES: dict[str, type[Pass]] = {p.name: p for p in (LegalizeQuantizeMx, LegalizeScaledMatmul, LowerToBir)}

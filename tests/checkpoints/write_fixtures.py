"""Writes the files of this directory with the libraries that publish MX weights. Not part of the tests.

    pip install torch==2.13.0 torchao==0.18.0 compressed-tensors==0.20.1 safetensors==0.8.0
    python tests/checkpoints/write_fixtures.py

`torchao.safetensors` and `compressed_tensors.safetensors` hold weights as those libraries store them;
`expected.npz` holds, for each, the codes (one a byte), the scale bytes and the values that the library itself
dequantizes them to. `torchao_rules.npz` holds blocks of bfloat16 bits and, for each of torchao's scale modes and
formats, its codes and scale bytes.
"""

from pathlib import Path

import numpy as np
import torch
from compressed_tensors.compressors import MXFP4PackedCompressor, MXFP8QuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import MXTensor, to_mx
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

HERE = Path(__file__).parent
FORMATS = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float4_e2m1fn": torch.float4_e2m1fn_x2,
}


def nibbles(packed: torch.Tensor) -> np.ndarray:
    """Two codes a byte, the first in the low nibble, as one code a byte."""
    raw = packed.view(torch.uint8).numpy()
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1)


def codes_of(elements: torch.Tensor, fmt: str) -> np.ndarray:
    """One code a byte."""
    if fmt == "float4_e2m1fn":
        return nibbles(elements)
    return (elements if elements.dtype == FORMATS[fmt] else elements.to(FORMATS[fmt])).view(torch.uint8).numpy()


def write_torchao(expected: dict[str, np.ndarray]) -> None:
    """Weights of three formats, of two and three dimensions, and a bias."""
    torch.manual_seed(0)
    tensors: dict[str, torch.Tensor] = {"0.bias": torch.randn(24, dtype=torch.bfloat16)}
    for index, (fmt, dtype) in enumerate(FORMATS.items()):
        weight = MXTensor.to_mx(torch.randn(24, 256, dtype=torch.bfloat16), dtype)
        tensors[f"{index}.weight"] = weight
        expected[f"torchao/{index}.weight/codes"] = codes_of(weight.qdata, fmt)
        expected[f"torchao/{index}.weight/scale"] = weight.scale.view(torch.uint8).numpy()
        expected[f"torchao/{index}.weight/values"] = weight.dequantize(torch.float32).numpy()
    flat, metadata = flatten_tensor_state_dict(tensors)
    save_file(flat, HERE / "torchao.safetensors", metadata=metadata)
    swizzled = MXTensor.to_mx(torch.randn(128, 128, dtype=torch.bfloat16), torch.float8_e4m3fn, is_swizzled_scales=True)
    flat, metadata = flatten_tensor_state_dict({"0.weight": swizzled})
    save_file(flat, HERE / "torchao_swizzled.safetensors", metadata=metadata)


def write_compressed_tensors(expected: dict[str, np.ndarray]) -> None:
    """One MXFP8 and one MXFP4 weight, compressed and decompressed by the library."""
    torch.manual_seed(1)
    stored: dict[str, torch.Tensor] = {"norm.weight": torch.randn(64)}
    for name, bits, compressor in (("mlp.up", 8, MXFP8QuantizationCompressor), ("mlp.down", 4, MXFP4PackedCompressor)):
        args = QuantizationArgs(
            num_bits=bits, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype=torch.uint8
        )
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        weight = torch.randn(24, 256, dtype=torch.bfloat16)
        peak = weight.float().abs().reshape(24, 8, 32).amax(-1)
        scale = torch.exp2(torch.floor(torch.log2(peak)) - (8 if bits == 8 else 2)).to(torch.bfloat16)
        state = {"weight": weight, "weight_scale": scale, "weight_zero_point": torch.zeros(24, 8)}
        compressed = compressor.compress(state, scheme)
        for key in ("weight", "weight_packed", "weight_scale"):
            if key in compressed and compressed[key] is not None:
                stored[f"{name}.{key}"] = compressed[key].contiguous()
        codes = stored[f"{name}.weight"] if bits == 8 else stored[f"{name}.weight_packed"]
        fmt = "float8_e4m3fn" if bits == 8 else "float4_e2m1fn"
        expected[f"compressed_tensors/{name}.weight/codes"] = codes_of(codes, fmt)
        expected[f"compressed_tensors/{name}.weight/scale"] = stored[f"{name}.weight_scale"].numpy()
        values = compressor.decompress(compressed, scheme)["weight"].float()
        expected[f"compressed_tensors/{name}.weight/values"] = values.numpy()
    save_file(stored, HERE / "compressed_tensors.safetensors", metadata={"format": "pt"})


def write_rules() -> None:
    """Blocks of every exponent and of awkward peaks, quantized by every mode."""
    generator = np.random.default_rng(2)
    exponent = np.repeat(np.arange(0, 255), 2)[:, None]
    below = np.clip(exponent - generator.integers(0, 12, (len(exponent), 32)), 0, 254)
    bits = (below << 7 | generator.integers(0, 128, below.shape)).astype(np.uint16)
    bits[:, 0] = (exponent[:, 0] << 7) | np.resize([0, 1, 0x3F, 0x40, 0x60, 0x68, 0x70, 0x7F], len(bits))
    bits |= (generator.integers(0, 2, bits.shape) << 15).astype(np.uint16)
    made: dict[str, np.ndarray] = {"bits": bits}
    values = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
    for mode in ScaleCalculationMode:
        for fmt, dtype in FORMATS.items():
            scale, elements = to_mx(values, dtype, 32, mode)
            made[f"{mode.name}/{fmt}/codes"] = codes_of(elements, fmt)
            made[f"{mode.name}/{fmt}/scale"] = scale.view(torch.uint8).numpy()
    np.savez_compressed(HERE / "torchao_rules.npz", **made)


def main() -> None:
    """Writes everything."""
    expected: dict[str, np.ndarray] = {}
    write_torchao(expected)
    write_compressed_tensors(expected)
    np.savez_compressed(HERE / "expected.npz", **expected)
    write_rules()


if __name__ == "__main__":
    main()

"""The MX quantize contract, one number at a time, in pure Python: what every other implementation is tested against.

It shares no code and no method with `jax_mx`: values are Python floats (doubles, in which every product here is exact),
and an element is rounded by looking for the nearest of the values that its format can hold.
"""

import bisect
import dataclasses
import math
import struct


@dataclasses.dataclass(frozen=True)
class Format:
    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    emax: int
    largest_code: int
    infinity_code: int | None
    nan_code: int | None

    @property
    def sign_bit(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits)

    def value(self, code: int) -> float:
        """The number that a code without sign stands for."""
        exponent, mantissa = divmod(code, 1 << self.mantissa_bits)
        fraction = mantissa / (1 << self.mantissa_bits)
        if code == self.infinity_code:
            return math.inf
        if self.nan_code is not None and code > (self.infinity_code or self.largest_code):
            return math.nan
        if exponent == 0:
            return math.ldexp(fraction, 1 - self.bias)
        return math.ldexp(1 + fraction, exponent - self.bias)


FORMATS = {
    "float8_e4m3fn": Format("float8_e4m3fn", 4, 3, 7, 8, 0x7E, None, 0x7F),
    "float8_e5m2": Format("float8_e5m2", 5, 2, 15, 15, 0x7B, 0x7C, 0x7E),
    "float4_e2m1fn": Format("float4_e2m1fn", 2, 1, 1, 2, 0x7, None, None),
}
SOURCES = ("bfloat16", "float16")
RULES = ("EMAX", "EMAX_ALT", "NKI", "OCP_FLOOR")

_VALUES = {name: [fmt.value(code) for code in range(fmt.largest_code + 1)] for name, fmt in FORMATS.items()}


def widen(bits: int, source: str) -> float:
    """The value of a source element; every one is exact as a float32 and so as a Python float."""
    if source == "bfloat16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def float32_exponent_field(bits: int, source: str) -> int:
    """(float32 bits >> 23) & 0xFF of a source element."""
    value = widen(bits, source)
    if math.isnan(value):
        return 255
    return (struct.unpack("<I", struct.pack("<f", value))[0] >> 23) & 0xFF


def is_nan(bits: int, source: str) -> bool:
    return math.isnan(widen(bits, source))


def exponent_subtracted(fmt: str, rule: str) -> int:
    emax = FORMATS[fmt].emax
    if rule == "EMAX_ALT" or (rule == "NKI" and fmt != "float4_e2m1fn"):
        return emax - 1
    return emax


def scale(block: list[int], source: str, fmt: str, rule: str) -> int:
    """The scale byte of a block of source bit patterns."""
    if rule == "OCP_FLOOR" and any(is_nan(bits, source) for bits in block):
        return 0xFF
    largest = max(float32_exponent_field(bits, source) for bits in block)
    smallest = 1 if rule in ("EMAX", "EMAX_ALT") else 0
    return max(smallest, largest - exponent_subtracted(fmt, rule))


def narrow(value: float, fmt: str) -> int:
    """The code nearest to a non-negative value, ties to the even code, saturated."""
    values = _VALUES[fmt]
    if value >= values[-1]:
        return len(values) - 1
    above = bisect.bisect_right(values, value)
    below = above - 1
    down, up = value - values[below], values[above] - value
    if down == up:
        return below if below % 2 == 0 else above
    return below if down < up else above


def element(bits: int, scale_byte: int, source: str, fmt: str, rule: str) -> int:
    """The code of one source element under its block's scale byte."""
    sign = FORMATS[fmt].sign_bit if bits & 0x8000 else 0
    if scale_byte == 0xFF:  # OCP_FLOOR alone, a block that holds a NaN
        return sign | ((FORMATS[fmt].nan_code or 0) if is_nan(bits, source) else 0)
    if is_nan(bits, source):
        return sign
    value = abs(widen(bits, source))
    multiplier = struct.unpack("<f", struct.pack("<I", (254 - scale_byte) << 23))[0]
    if math.isinf(value) and multiplier == 0.0:
        return FORMATS[fmt].sign_bit  # the default NaN of x86 is negative, and a NaN becomes a zero of its sign
    return sign | narrow(_to_float32(value * multiplier), fmt)


def _to_float32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf


def quantize_block(block: list[int], source: str, fmt: str, rule: str) -> tuple[list[int], int]:
    """Codes and scale byte of up to 32 source bit patterns."""
    scale_byte = scale(block, source, fmt, rule)
    return [element(bits, scale_byte, source, fmt, rule) for bits in block], scale_byte


def dequantize(code: int, scale_byte: int, fmt: str) -> float:
    """The value of one element; a Python float holds it exactly. NaNs carry no sign here."""
    form = FORMATS[fmt]
    magnitude = form.value(code & (form.sign_bit - 1))
    if scale_byte == 0xFF or math.isnan(magnitude):
        return math.nan
    return math.copysign(math.ldexp(magnitude, scale_byte - 127), -1.0 if code & form.sign_bit else 1.0)

// The arithmetic of one element, for a vector of them or a single one: the C++ twin of `_quantize.py`,
// `_dequantize.py` and `_float_bits.py`, which explain it.
//
// Subnormals never reach float arithmetic in a way that matters, so that a thread that flushes them gets the same bits.

#ifndef JAX_MX_NATIVE_NUMERICS_H_
#define JAX_MX_NATIVE_NUMERICS_H_

#include "kernels.h"
#include "simd.h"

namespace jax_mx {
namespace JAX_MX_ISA {

constexpr int32_t kInf = 0x7F800000;
constexpr int32_t kMinNormal = 0x00800000;
constexpr int32_t kMantissa = 23;
constexpr int32_t kBias = 127;
constexpr int32_t kNanScale = 0xFF;

// Blocks with a scale below this may hold source subnormals that do not round to zero: times 2**(127 - 20) the largest
// is under 2**-18, less than half of the finest quantum, that of e5m2.
constexpr int32_t kSmallScale = 20;

template <Format F>
struct Traits;
template <>
struct Traits<Format::kE4M3FN> {
  static constexpr int32_t mantissa = 3, bias = 7, sign = 0x80, max_number = 0x7E, nan = 0x7F, inf = -1;
  static constexpr int32_t largest = 0x43E00000;  // float32 448
};
template <>
struct Traits<Format::kE5M2> {
  static constexpr int32_t mantissa = 2, bias = 15, sign = 0x80, max_number = 0x7C, nan = 0x7E, inf = 0x7C;
  static constexpr int32_t largest = 0x47600000;  // float32 57344
};
template <>
struct Traits<Format::kE2M1FN> {
  static constexpr int32_t mantissa = 1, bias = 1, sign = 0x8, max_number = 0x7, nan = 0, inf = -1;
  static constexpr int32_t largest = 0x40C00000;  // float32 6
};

// bfloat16 bits of the smallest normal value of a format, and of half its quantum: what is not above that is zero.
template <Format F>
constexpr int16_t smallest_normal_bf16 = (1 - Traits<F>::bias + kBias) << 7;
template <Format F>
constexpr int16_t half_quantum_bf16 = smallest_normal_bf16<F> - ((Traits<F>::mantissa + 1) << 7);

// The infinity of a 16-bit source, sign bit clear; larger magnitudes are NaNs.
template <Float S>
constexpr int32_t source_inf = S == Float::kBfloat16 ? 0x7F80 : 0x7C00;

// float32 bits of source magnitudes.
template <Float S, typename T>
JAX_MX_INLINE T widen_magnitude(T wide) {
  if constexpr (S == Float::kBfloat16) return wide << 16;
  constexpr int32_t rebias = (127 - 15) << kMantissa;
  constexpr int32_t half = 0x3F000000;  // float32 0.5: its last place is float16's smallest subnormal
  const T normal = (wide << 13) + rebias;
  const T special = (wide << 13) + 2 * rebias;
  const T subnormal = as_bits(as_real(wide | half) - as_real(T{} + half));
  return wide < 0x0400 ? subnormal : wide >= 0x7C00 ? special : normal;
}

// The scale byte of a block whose largest magnitude has these float32 bits.
template <typename T>
JAX_MX_INLINE T block_scale(T peak, const Rule& rule) {
  const T scale = max((peak >> kMantissa) - rule.exponent_offset, T{} + rule.min_scale);
  if (rule.propagate_nan) return peak > kInf ? T{} + kNanScale : scale;
  return scale;
}

// Codes nearest to non-negative float32 bits, ties to even: adding a power of two whose last place is the format's
// quantum at `value` makes the float adder round there.
template <Format F>
JAX_MX_INLINE Int round_to_code(Int value) {
  constexpr int32_t drop = kMantissa - Traits<F>::mantissa;
  constexpr int32_t smallest_normal = (1 - Traits<F>::bias + kBias) << kMantissa;
  constexpr int32_t first_step = (smallest_normal + (drop << kMantissa)) >> drop;
  const Int magic = (max(value, broadcast(smallest_normal)) & kInf) + (drop << kMantissa);
  const Int sum = as_bits(as_real(value) + as_real(magic));
  return (sum - magic) + ((magic >> drop) - first_step);
}

// The sign bit of a code from source bits, in lanes of 16 or 32 bits.
template <Format F, typename T>
JAX_MX_INLINE T sign_of_source(T bits) {
  return (bits >> (16 - bits_of(F))) & Traits<F>::sign;
}

// float32 bits of the magnitudes of source elements.
template <Float S>
JAX_MX_INLINE Int magnitudes(Halves bits) {
  const Halves magnitude = bits & 0x7FFF;
  if constexpr (S == Float::kFloat16 && kConvertsFloat16) return as_bits(from_float16(magnitude));
  return widen_magnitude<S>(widen(magnitude));
}

// Codes of finite elements whose block has no small scale. `bits` are source bits, `shift` is (127 - scale) << 23.
template <Float S, Format F>
JAX_MX_INLINE Int plain_codes(Halves bits, Int shift) {
  const Int scaled = max(magnitudes<S>(bits) + shift, Int{});
  return round_to_code<F>(min(scaled, broadcast(Traits<F>::largest))) | sign_of_source<F>(widen(bits));
}

// The codes of e2m1 by bfloat16 bits of their magnitude, where a register can be looked up in. Between neighbouring
// bins, each half of an octave, codes differ by at most one, and inside a bin by one where its threshold is passed.
struct E2M1Bins {
  static constexpr int kShift = 6;  // a bin's number is bits >> kShift, of which the lowest five count
  static constexpr int16_t kZero = 0x3E40;  // 0.1875, which is zero in the first of the bins, as is all below it
  static constexpr int16_t kNone = 0x7FFF;
  // 4, 6; 0.1875, 0.25, 0.375, 0.5, 0.75, 1, 1.5; 2, 3 are where the bins begin, by number modulo 32. A threshold that
  // is a tie goes to the even code: 1.25 down, 1.75 up.
  static constexpr int16_t kCodes[32] = {4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                         0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3};
  static constexpr int16_t kThresholds[32] = {
      0x4020, 0x405F, 0x40A0, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,
      kNone,  kNone,  kNone,  kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,
      kNone,  kNone,  kNone,  kNone, 0x3E80, kNone, kNone, kNone, 0x3FA0, 0x3FDF};

  const Short codes = load<Short>(kCodes), thresholds = load<Short>(kThresholds);

  JAX_MX_INLINE Short operator()(Short magnitude) const {
    const Short bin = magnitude >> kShift;
    return look_up(codes, bin) - (magnitude > look_up(thresholds, bin));
  }
};

// The same for bfloat16 elements in 16-bit lanes, twice as many at a time. Bits of bfloat16 round like integers where
// the result is normal or zero.
template <Format F>
struct Bfloat16Codes {
  static constexpr int kDrop = 7 - Traits<F>::mantissa;

  const Short magnitude = kept(0x7FFF), one = kept(1), below_half = kept((1 << (kDrop - 1)) - 1);
  const Short largest = kept(Traits<F>::largest >> 16), sign = kept(Traits<F>::sign);
  const Short first = kept((smallest_normal_bf16<F> >> kDrop) - (1 << Traits<F>::mantissa));
  const Short half_quantum = kept(half_quantum_bf16<F>), three_quarters = kept(0x3F40);
  const Short smallest_normal = kept(smallest_normal_bf16<F>), zero = kept(E2M1Bins::kZero);
  const E2M1Bins bins;

  // `shift` is (127 - scale) << 7. `subnormal` gains the lanes whose result is subnormal and must come from elsewhere;
  // of e2m1, whose only subnormal code is 1, it gains none.
  JAX_MX_INLINE Short operator()(Short bits, Short shift, Short& subnormal) const {
    const Short shifted = min((bits & magnitude) + shift, largest);
    return magnitude_code(shifted, subnormal) | ((bits >> (16 - bits_of(F))) & sign);
  }

 private:
  JAX_MX_INLINE Short magnitude_code(Short shifted, Short& subnormal) const {
    if constexpr (F == Format::kE2M1FN && kLooksUp) return bins(max(shifted, zero));
    const Short scaled = max(shifted, Short{});
    const Short rounded = (scaled + below_half + ((scaled >> kDrop) & one)) >> kDrop;
    const Short code = max(rounded - first, Short{});
    if constexpr (F == Format::kE2M1FN) {
      return max(code, -((scaled > half_quantum) + (scaled >= three_quarters)));  // 0.75, a tie, goes to 1.0
    }
    subnormal |= (scaled > half_quantum) & (scaled < smallest_normal);
    return code;
  }
};

// Codes of any elements under any scale that a rule gives their block.
template <Float S, Format F>
JAX_MX_INLINE Int any_codes(Halves bits, Int scale, const Rule& rule) {
  const Int magnitude = magnitudes<S>(bits);
  const Int shift = kBias - scale;
  Int scaled = max(magnitude + (shift << kMantissa), Int{});
  if constexpr (S == Float::kFloat16) {
    scaled = magnitude == 0 ? Int{} : scaled;
  } else {
    const Int one = max((shift + 1) << kMantissa, Int{});
    const Int subnormal = as_bits(as_real(magnitude + one) - as_real(one));
    scaled = magnitude < kMinNormal ? subnormal : scaled;
  }
  const Int largest = broadcast(Traits<F>::largest);
  const Int is_nan = magnitude > kInf;
  Int code = round_to_code<F>(magnitude >= kInf ? largest : min(scaled, largest));
  code = is_nan ? Int{} : code;
  // A scale of 254 has the multiplier +0.0: finite elements become zeros, and Inf * 0 is x86's NaN, a negative one.
  const Int zeroed = scale == 254;
  code = zeroed ? Int{} : code;
  Int sign = sign_of_source<F>(widen(bits));
  sign |= (zeroed & (magnitude == kInf)) & Traits<F>::sign;
  if (rule.propagate_nan) {
    const Int nan_or_zero = is_nan & Traits<F>::nan;
    code = scale == kNanScale ? nan_or_zero : code;
  }
  return code | sign;
}

// float32 magnitude bits (no NaN) rounded once to `T`, ties to even; overflow gives Inf.
template <Float T>
JAX_MX_INLINE Int round_bits(Int bits) {
  if constexpr (T == Float::kFloat32) return bits;
  if constexpr (T == Float::kBfloat16) return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  constexpr int32_t rebias = (127 - 15) << kMantissa;
  constexpr int32_t half = 0x3F000000;
  const Int normal = (bits - rebias + 0x0FFF + ((bits >> 13) & 1)) >> 13;
  const Int subnormal = as_bits(as_real(bits) + as_real(broadcast(half))) - half;
  return min(bits < ((127 - 14) << kMantissa) ? subnormal : normal, broadcast(0x7C00));
}

// Bits of `T` of the values that codes stand for under scale bytes.
template <Format F, Float T>
JAX_MX_INLINE Int any_values(Int codes, Int scale) {
  constexpr int32_t step = kMantissa - Traits<F>::mantissa;
  constexpr int32_t smallest_normal = (1 - Traits<F>::bias + kBias) << kMantissa;
  constexpr int32_t quiet_nan = T == Float::kFloat32 ? 0x7FC00000 : T == Float::kBfloat16 ? 0x7FC0 : 0x7E00;
  constexpr int32_t sign_shift = (T == Float::kFloat32 ? 32 : 16) - bits_of(F);

  const Int code = codes & (Traits<F>::sign - 1);
  const Int raw = code << step;
  const Int normal = raw + ((kBias - Traits<F>::bias) << kMantissa);
  const Int subnormal = as_bits(as_real(raw + smallest_normal) - as_real(broadcast(smallest_normal)));
  const Int element = code < (1 << Traits<F>::mantissa) ? subnormal : normal;

  // Times 2**(scale - 127) on the exponent field. An element has at most four significant bits: shifting it into the
  // subnormals drops none.
  const Int steps = scale - kBias;
  const Int exponent = (element >> kMantissa) + steps;
  const Int significand = (element & (kMinNormal - 1)) | kMinNormal;
  const Int small = significand >> min(max(1 - exponent, Int{}), broadcast(31));
  Int bits = exponent >= 1 ? element + (steps << kMantissa) : small;
  Int overflows = exponent >= 255;
  Int is_nan = scale == kNanScale;
  if constexpr (Traits<F>::inf >= 0) overflows |= code == Traits<F>::inf;
  if constexpr (Traits<F>::nan != 0) is_nan |= code > Traits<F>::max_number;
  bits = overflows ? broadcast(kInf) : bits;
  bits = element == 0 ? Int{} : bits;
  bits = is_nan ? broadcast(quiet_nan) : round_bits<T>(bits);
  return bits | ((codes & Traits<F>::sign) << sign_shift);
}

// Whether every number that a code stands for under this scale is a float32 normal or zero.
template <typename T>
JAX_MX_INLINE auto is_plain_scale(T scale) {
  return (scale >= 17) & (scale <= 238);
}

// What turns float16 bits made of a code into its value under a plain scale, by one exact multiplication.
template <Format F>
JAX_MX_INLINE Real plain_factor(Int scale) {
  return as_real((scale + (15 - Traits<F>::bias)) << kMantissa);
}

// Bits of `T` of the values that codes stand for under a plain scale; `nan` gains the lanes that hold no number.
// A code's exponent and mantissa, at float16's place, are the element times 2**(bias - 15), subnormals included.
template <Format F, Float T>
JAX_MX_INLINE auto plain_values(Halves codes, Real factor, Halves& nan) {
  const Halves code = codes & (Traits<F>::sign - 1);
  if constexpr (F == Format::kE4M3FN) nan |= (Halves)(code == Traits<F>::nan);
  if constexpr (F == Format::kE5M2) nan |= (Halves)(code >= Traits<F>::inf);
  const Halves bits = (code << (10 - Traits<F>::mantissa)) | ((codes & Traits<F>::sign) << (16 - bits_of(F)));
  const Real value = from_float16(bits) * factor;
  if constexpr (T == Float::kFloat32) {
    return as_bits(value);
  } else if constexpr (T == Float::kFloat16) {
    return to_float16(value);
  } else {
    return to_halves((as_bits(value) >> 16) & 0xFFFF);  // exact: at most four significant bits
  }
}

}  // namespace JAX_MX_ISA
}  // namespace jax_mx

#endif  // JAX_MX_NATIVE_NUMERICS_H_

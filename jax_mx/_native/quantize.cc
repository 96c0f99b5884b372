// Quantization of a range of blocks: one loop for a contiguous axis, one for an axis with others inside it.

#include "kernels.h"
#include "numerics.h"
#include "simd.h"

namespace jax_mx {
namespace JAX_MX_ISA {
namespace {

// The largest of 32 neighbouring magnitudes.
JAX_MX_INLINE int32_t block_peak(const uint16_t* x) {
  const Eight low = max(load<Eight>(x) & 0x7FFF, load<Eight>(x + 8) & 0x7FFF);
  const Eight high = max(load<Eight>(x + 16) & 0x7FFF, load<Eight>(x + 24) & 0x7FFF);
  return largest(max(low, high));
}

// Codes of kShortLanes neighbouring elements whose blocks are finite and have no small scale. `scale` holds one byte
// per element, or one for all of them.
template <Float S, Format F, typename Scale>
JAX_MX_INLINE Short plain_vector(const uint16_t* x, Scale scale, const Bfloat16Codes<F>& bfloat16_codes) {
  Short subnormal = {};
  if constexpr (S == Float::kBfloat16) {
    const Short codes = bfloat16_codes(load<Short>(x), (kBias - scale.shorts()) << 7, subnormal);
    if (__builtin_expect(!any(subnormal), 1)) return codes;
  }
  return join(plain_codes<S, F>(load<Halves>(x), (kBias - scale.low()) << kMantissa),
              plain_codes<S, F>(load<Halves>(x + kLanes), (kBias - scale.high()) << kMantissa));
}

// The same for any block.
template <Float S, Format F, typename Scale>
JAX_MX_INLINE Short any_vector(const uint16_t* x, Scale scale, const Rule& rule) {
  return join(any_codes<S, F>(load<Halves>(x), scale.low(), rule),
              any_codes<S, F>(load<Halves>(x + kLanes), scale.high(), rule));
}

// Scales of kShortLanes elements: the same one, or neighbours in memory.
struct OneScale {
  int32_t scale;
  JAX_MX_INLINE Short shorts() const { return broadcast_short(scale); }
  JAX_MX_INLINE Int low() const { return broadcast(scale); }
  JAX_MX_INLINE Int high() const { return broadcast(scale); }
};
struct ManyScales {
  const int16_t* scales;
  JAX_MX_INLINE Short shorts() const { return load<Short>(scales); }
  JAX_MX_INLINE Int low() const { return widen(load<Halves>(scales)); }
  JAX_MX_INLINE Int high() const { return widen(load<Halves>(scales + kLanes)); }
};

// Stores kShortLanes neighbouring codes.
template <Format F>
JAX_MX_INLINE void store_codes(uint8_t* to, Short codes) {
  if constexpr (bits_of(F) == 8) {
    store(to, to_bytes(codes));
  } else {
    const Int pairs = (Int)codes;
    store(to, to_bytes(pairs | (pairs >> 12)));
  }
}

// Quantizes `count` neighbouring blocks. A function of its own without calls, so that constants stay in registers.
template <Float S, Format F>
__attribute__((noinline)) void quantize_blocks(const uint16_t* x, int64_t count, uint8_t* data, uint8_t* scales,
                                               const Rule rule) {
  constexpr int kVectors = kBlockSize / kShortLanes, kStep = kShortLanes * bits_of(F) / 8;
  const Bfloat16Codes<F> bfloat16_codes;
  for (int64_t block = 0; block < count; ++block, x += kBlockSize, data += kBlockSize * bits_of(F) / 8) {
    const int32_t peak = block_peak(x);
    const OneScale scale{block_scale(widen_magnitude<S>(peak), rule)};
    scales[block] = scale.scale;
    if (__builtin_expect(peak < source_inf<S> && scale.scale >= kSmallScale, 1)) {
      for (int i = 0; i < kVectors; ++i) {
        store_codes<F>(data + i * kStep, plain_vector<S, F>(x + i * kShortLanes, scale, bfloat16_codes));
      }
    } else {
      for (int i = 0; i < kVectors; ++i) {
        store_codes<F>(data + i * kStep, any_vector<S, F>(x + i * kShortLanes, scale, rule));
      }
    }
  }
}

template <Float S, Format F>
void quantize_contiguous(const QuantizeJob& job, int64_t begin, int64_t end) {
  const int64_t blocks = job.shape.blocks(), last = job.shape.length % kBlockSize;
  for (int64_t unit = begin; unit < end;) {
    const int64_t row = unit / blocks, block = unit % blocks;
    const int64_t first = row * job.shape.length + block * kBlockSize;
    const uint16_t* x = job.x + first;
    uint8_t *data = job.data + first * bits_of(F) / 8, *scales = job.scale + unit;
    if (last == 0 || block < blocks - 1) {
      const int64_t count = last == 0 ? end - unit : min(end - unit, blocks - 1 - block);
      quantize_blocks<S, F>(x, count, data, scales, job.rule);
      unit += count;
    } else {
      uint16_t padded[kBlockSize] = {};  // zeros never raise a block's largest magnitude
      uint8_t padded_data[kBlockSize];
      __builtin_memcpy(padded, x, last * sizeof(uint16_t));
      quantize_blocks<S, F>(padded, 1, padded_data, scales, job.rule);
      __builtin_memcpy(data, padded_data, last * bits_of(F) / 8);
      ++unit;
    }
  }
}

// Scales of kShortLanes columns, from their largest magnitudes.
template <Float S>
JAX_MX_INLINE Short column_scales(const uint16_t* peaks, const Rule& rule) {
  return join(block_scale(widen_magnitude<S>(widen(load<Halves>(peaks))), rule),
              block_scale(widen_magnitude<S>(widen(load<Halves>(peaks + kLanes))), rule));
}

// Stores the containers of kShortLanes columns, from the codes of their four rows.
template <Format F>
JAX_MX_INLINE void store_containers(uint8_t* to, const Short (&codes)[kPacked]) {
  if constexpr (bits_of(F) == 8) {
    const auto [first, second] = interleave(codes[0] | (codes[1] << 8), codes[2] | (codes[3] << 8));
    store(to, first);
    store(to + sizeof(Short), second);
  } else {
    store(to, codes[0] | (codes[1] << 4) | (codes[2] << 8) | (codes[3] << 12));
  }
}

// A part of an array with other axes inside the quantized one: one block long, `columns` wide, at least kShortLanes.
struct Strip {
  const uint16_t* x;
  int64_t x_stride;  // elements from one row to the next
  uint8_t* data;
  int64_t data_stride;  // bytes from one row of containers to the next
  uint8_t* scale;
  int64_t rows, columns;
};

// Calls `each(column)` for every vector of columns. The last one overlaps the one before it rather than reach beyond
// the strip: what both write is the same.
template <typename Each>
JAX_MX_INLINE void for_columns(int64_t columns, const Each& each) {
  for (int64_t column = 0; column < columns; column += kShortLanes) each(min(column, columns - kShortLanes));
}

template <Float S, Format F>
__attribute__((noinline)) void quantize_strip(const Strip strip, const Rule rule) {
  uint16_t peaks[2 * kStrip] = {};
  for (int64_t row = 0; row < strip.rows; row += kPacked) {
    for_columns(strip.columns, [&](int64_t column) JAX_MX_LAMBDA_INLINE {
      Short peak = load<Short>(peaks + column);
      for (int lane = 0; lane < kPacked; ++lane) {
        peak = max(peak, load<Short>(strip.x + (row + lane) * strip.x_stride + column) & 0x7FFF);
      }
      store(peaks + column, peak);
    });
  }

  int16_t scales[2 * kStrip];
  Short unusual = {};
  for_columns(strip.columns, [&](int64_t column) JAX_MX_LAMBDA_INLINE {
    const Short scale = column_scales<S>(peaks + column, rule);
    unusual |= (load<Short>(peaks + column) >= source_inf<S>) | (scale < kSmallScale);
    store(scales + column, scale);
    store(strip.scale + column, to_bytes(scale));
  });

  const Bfloat16Codes<F> bfloat16_codes;
  const bool plain = !any(unusual);
  for (int64_t row = 0; row < strip.rows; row += kPacked) {
    for_columns(strip.columns, [&](int64_t column) JAX_MX_LAMBDA_INLINE {
      const uint16_t* from = strip.x + row * strip.x_stride + column;
      const ManyScales scale{scales + column};
      Short codes[kPacked];
      for (int lane = 0; lane < kPacked; ++lane, from += strip.x_stride) {
        codes[lane] = __builtin_expect(plain, 1) ? plain_vector<S, F>(from, scale, bfloat16_codes)
                                                 : any_vector<S, F>(from, scale, rule);
      }
      store_containers<F>(strip.data + row / kPacked * strip.data_stride + column * kPacked * bits_of(F) / 8, codes);
    });
  }
}

// The same for fewer columns than a vector has lanes, on a copy that is wide enough.
template <Float S, Format F>
void quantize_narrow_strip(const Strip& strip, const Rule& rule) {
  constexpr int kContainer = kPacked * bits_of(F) / 8;
  uint16_t x[kBlockSize * kShortLanes] = {};
  uint8_t data[kBlockSize / kPacked * kShortLanes * kContainer], scale[kShortLanes];
  for (int64_t row = 0; row < strip.rows; ++row) {
    __builtin_memcpy(x + row * kShortLanes, strip.x + row * strip.x_stride, strip.columns * sizeof(uint16_t));
  }
  quantize_strip<S, F>({x, kShortLanes, data, kShortLanes * kContainer, scale, strip.rows, kShortLanes}, rule);
  for (int64_t row = 0; row < strip.rows / kPacked; ++row) {
    __builtin_memcpy(strip.data + row * strip.data_stride, data + row * kShortLanes * kContainer,
                     strip.columns * kContainer);
  }
  __builtin_memcpy(strip.scale, scale, strip.columns);
}

template <Float S, Format F>
void quantize_strided(const QuantizeJob& job, int64_t begin, int64_t end) {
  constexpr int kContainer = kPacked * bits_of(F) / 8;
  for (int64_t unit = begin; unit < end; ++unit) {
    const Place at(job.shape, unit);
    const Strip strip{job.x + at.element,  job.shape.inner, job.data + at.container * kContainer,
                      job.shape.inner * kContainer, job.scale + at.scale, at.rows, at.columns};
    at.columns >= kShortLanes ? quantize_strip<S, F>(strip, job.rule) : quantize_narrow_strip<S, F>(strip, job.rule);
  }
}

template <Float S, Format F>
void run(const QuantizeJob& job, int64_t begin, int64_t end) {
  job.shape.inner == 1 ? quantize_contiguous<S, F>(job, begin, end) : quantize_strided<S, F>(job, begin, end);
}

template <Float S>
void run(const QuantizeJob& job, int64_t begin, int64_t end) {
  switch (job.format) {
    case Format::kE4M3FN: return run<S, Format::kE4M3FN>(job, begin, end);
    case Format::kE5M2: return run<S, Format::kE5M2>(job, begin, end);
    case Format::kE2M1FN: return run<S, Format::kE2M1FN>(job, begin, end);
  }
}

}  // namespace

void quantize(const QuantizeJob& job, int64_t begin, int64_t end) {
  job.source == Float::kBfloat16 ? run<Float::kBfloat16>(job, begin, end) : run<Float::kFloat16>(job, begin, end);
}

}  // namespace JAX_MX_ISA
}  // namespace jax_mx

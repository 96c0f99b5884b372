// Dequantization of a range of blocks: one loop for a contiguous axis, one for an axis with others inside it.

#include "kernels.h"
#include "numerics.h"
#include "simd.h"

namespace jax_mx {
namespace JAX_MX_ISA {
namespace {

// Loads kLanes neighbouring codes.
template <Format F>
JAX_MX_INLINE Halves load_codes(const uint8_t* from) {
  if constexpr (bits_of(F) == 8) {
    return widen_to_halves(load<Bytes>(from));
  } else {
    const PairInts pairs = widen(load<PairBytes>(from));
    return (Halves)((pairs & 0xF) | ((pairs & 0xF0) << 12));
  }
}

// Stores kLanes neighbouring values.
template <Float T>
JAX_MX_INLINE void store_values(uint8_t* to, Int bits) {
  if constexpr (T == Float::kFloat32) {
    store(to, bits);
  } else {
    store(to, to_halves(bits));
  }
}

// A register of values of one type, and how the codes of as many e2m1 elements become indices into one.
template <Float T>
struct Register {
  using Vector = Short;
  static JAX_MX_INLINE Short indices(const uint8_t* packed) {
    const Int pairs = widen(load<Bytes>(packed));
    return (Short)(pairs | (pairs << 12));
  }
};
template <>
struct Register<Float::kFloat32> {
  using Vector = Int;
  static JAX_MX_INLINE Int indices(const uint8_t* packed) {
    const Pairs pairs = __builtin_convertvector(widen(load<PairBytes>(packed)), Pairs);
    return (Int)(pairs | (pairs << 28));
  }
};

// The values of codes 0 to kLanes - 1 under a block's scale, in a register of kShortLanes twice in a row.
template <Format F, Float T>
JAX_MX_INLINE typename Register<T>::Vector values_of_codes(Int scale, bool plain) {
  const Int codes = first_integers();
  if constexpr (T == Float::kFloat32) {
    Halves nan = {};
    return plain ? plain_values<F, T>(to_halves(codes), plain_factor<F>(scale), nan) : any_values<F, T>(codes, scale);
  } else {
    Halves nan = {}, values;
    values = plain ? plain_values<F, T>(to_halves(codes), plain_factor<F>(scale), nan)
                   : to_halves(any_values<F, T>(codes, scale));
    return join(values, values);
  }
}

// Dequantizes `count` neighbouring blocks of a format of so few codes that the values they stand for under one scale fit a register: a table.
// Indices are packed codes, shifted into place; bits above the four that count are not looked at, or make no difference
// in a table that holds everything twice.
template <Format F, Float T>
__attribute__((noinline)) void dequantize_blocks_by_table(const uint8_t* data, const uint8_t* scales, int64_t count,
                                                          uint8_t* y) {
  using Vector = typename Register<T>::Vector;
  constexpr int kCodes = sizeof(Vector) / bytes_of(T), kVectors = kBlockSize / kCodes;
  for (int64_t block = 0; block < count; ++block) {
    const bool plain = __builtin_expect(is_plain_scale(int{scales[block]}), 1);
    const Vector table = values_of_codes<F, T>(broadcast(scales[block]), plain);
    for (int i = 0; i < kVectors; ++i, data += kCodes / 2, y += sizeof(Vector)) {
      store(y, look_up(table, Register<T>::indices(data)));
    }
  }
}

// Dequantizes `count` neighbouring blocks. A function of its own without calls, so that constants stay in registers.
template <Format F, Float T>
__attribute__((noinline)) void dequantize_blocks(const uint8_t* data, const uint8_t* scales, int64_t count,
                                                 uint8_t* y) {
  if constexpr (F == Format::kE2M1FN && kLooksUp) return dequantize_blocks_by_table<F, T>(data, scales, count, y);
  constexpr int kVectors = kBlockSize / kLanes, kStep = kLanes * bytes_of(T), kCodes = kLanes * bits_of(F) / 8;
  for (int64_t block = 0; block < count; ++block, data += kVectors * kCodes, y += kVectors * kStep) {
    const Int scale = broadcast(scales[block]);
    if (kConvertsFloat16 && __builtin_expect(is_plain_scale(int{scales[block]}), 1)) {
      const Real factor = plain_factor<F>(scale);
      Halves nan = {};
      for (int i = 0; i < kVectors; ++i) {
        store(y + i * kStep, plain_values<F, T>(load_codes<F>(data + i * kCodes), factor, nan));
      }
      if (__builtin_expect(!any(nan), 1)) continue;
    }
    for (int i = 0; i < kVectors; ++i) {
      store_values<T>(y + i * kStep, any_values<F, T>(widen(load_codes<F>(data + i * kCodes)), scale));
    }
  }
}

template <Format F, Float T>
void dequantize_contiguous(const DequantizeJob& job, int64_t begin, int64_t end) {
  const int64_t blocks = job.shape.blocks(), last = job.shape.length % kBlockSize;
  for (int64_t unit = begin; unit < end;) {
    const int64_t row = unit / blocks, block = unit % blocks;
    const int64_t first = row * job.shape.length + block * kBlockSize;
    const uint8_t *data = job.data + first * bits_of(F) / 8, *scales = job.scale + unit;
    uint8_t* y = job.y + first * bytes_of(T);
    if (last == 0 || block < blocks - 1) {
      const int64_t count = last == 0 ? end - unit : min(end - unit, blocks - 1 - block);
      dequantize_blocks<F, T>(data, scales, count, y);
      unit += count;
    } else {
      uint8_t padded_data[kBlockSize] = {}, padded[kBlockSize * bytes_of(T)];
      __builtin_memcpy(padded_data, data, last * bits_of(F) / 8);
      dequantize_blocks<F, T>(padded_data, scales, 1, padded);
      __builtin_memcpy(y, padded, last * bytes_of(T));
      ++unit;
    }
  }
}

// Loads the codes of kLanes columns in the four rows of their containers.
template <Format F>
JAX_MX_INLINE void load_containers(const uint8_t* from, Halves (&codes)[kPacked]) {
  if constexpr (bits_of(F) == 8) {
    const Int containers = load<Int>(from);
    const Halves low = to_halves(containers & 0xFFFF), high = to_halves((containers >> 16) & 0xFFFF);
    codes[0] = low & 0xFF, codes[1] = low >> 8, codes[2] = high & 0xFF, codes[3] = high >> 8;
  } else {
    const Halves containers = load<Halves>(from);
    for (int lane = 0; lane < kPacked; ++lane) codes[lane] = (containers >> (4 * lane)) & 0xF;
  }
}

// A part of an array with other axes inside the quantized one: one block long, `columns` wide, at least kLanes.
struct Strip {
  const uint8_t* data;
  int64_t data_stride;  // bytes from one row of containers to the next
  const uint8_t* scale;
  uint8_t* y;
  int64_t y_stride;  // bytes from one row to the next
  int64_t rows, columns;
};

// Calls `each(column)` for every vector of columns. The last one overlaps the one before it rather than reach beyond
// the strip: what both write is the same.
template <typename Each>
JAX_MX_INLINE void for_columns(int64_t columns, const Each& each) {
  for (int64_t column = 0; column < columns; column += kLanes) each(min(column, columns - kLanes));
}

template <Format F, Float T>
__attribute__((noinline)) void dequantize_strip(const Strip strip) {
  Int plain = broadcast(-1);
  for_columns(strip.columns, [&](int64_t column) JAX_MX_LAMBDA_INLINE {
    plain &= is_plain_scale(widen(load<Bytes>(strip.scale + column)));
  });
  const bool all_plain = kConvertsFloat16 && !any(~plain);

  for (int64_t row = 0; row < strip.rows; row += kPacked) {
    for_columns(strip.columns, [&](int64_t column) JAX_MX_LAMBDA_INLINE {
      Halves codes[kPacked];
      load_containers<F>(strip.data + row / kPacked * strip.data_stride + column * kPacked * bits_of(F) / 8, codes);
      const Int scale = widen(load<Bytes>(strip.scale + column));
      uint8_t* y = strip.y + row * strip.y_stride + column * bytes_of(T);
      if (__builtin_expect(all_plain, 1)) {
        const Real factor = plain_factor<F>(scale);
        Halves nan = {};
        for (int lane = 0; lane < kPacked; ++lane) {
          store(y + lane * strip.y_stride, plain_values<F, T>(codes[lane], factor, nan));
        }
        if (__builtin_expect(!any(nan), 1)) return;
      }
      for (int lane = 0; lane < kPacked; ++lane) {
        store_values<T>(y + lane * strip.y_stride, any_values<F, T>(widen(codes[lane]), scale));
      }
    });
  }
}

// The same for fewer columns than a vector has lanes, on a copy that is wide enough.
template <Format F, Float T>
void dequantize_narrow_strip(const Strip& strip) {
  constexpr int kContainer = kPacked * bits_of(F) / 8;
  uint8_t data[kBlockSize / kPacked * kLanes * kContainer] = {}, scale[kLanes] = {};
  uint8_t y[kBlockSize * kLanes * bytes_of(T)];
  for (int64_t row = 0; row < strip.rows / kPacked; ++row) {
    __builtin_memcpy(data + row * kLanes * kContainer, strip.data + row * strip.data_stride,
                     strip.columns * kContainer);
  }
  __builtin_memcpy(scale, strip.scale, strip.columns);
  dequantize_strip<F, T>({data, kLanes * kContainer, scale, y, kLanes * bytes_of(T), strip.rows, kLanes});
  for (int64_t row = 0; row < strip.rows; ++row) {
    __builtin_memcpy(strip.y + row * strip.y_stride, y + row * kLanes * bytes_of(T), strip.columns * bytes_of(T));
  }
}

template <Format F, Float T>
void dequantize_strided(const DequantizeJob& job, int64_t begin, int64_t end) {
  constexpr int kContainer = kPacked * bits_of(F) / 8;
  for (int64_t unit = begin; unit < end; ++unit) {
    const Place at(job.shape, unit);
    const Strip strip{job.data + at.container * kContainer,
                      job.shape.inner * kContainer,
                      job.scale + at.scale,
                      job.y + at.element * bytes_of(T),
                      job.shape.inner * bytes_of(T),
                      at.rows,
                      at.columns};
    at.columns >= kLanes ? dequantize_strip<F, T>(strip) : dequantize_narrow_strip<F, T>(strip);
  }
}

template <Format F, Float T>
void run(const DequantizeJob& job, int64_t begin, int64_t end) {
  job.shape.inner == 1 ? dequantize_contiguous<F, T>(job, begin, end) : dequantize_strided<F, T>(job, begin, end);
}

template <Format F>
void run(const DequantizeJob& job, int64_t begin, int64_t end) {
  switch (job.target) {
    case Float::kBfloat16: return run<F, Float::kBfloat16>(job, begin, end);
    case Float::kFloat16: return run<F, Float::kFloat16>(job, begin, end);
    case Float::kFloat32: return run<F, Float::kFloat32>(job, begin, end);
  }
}

}  // namespace

void dequantize(const DequantizeJob& job, int64_t begin, int64_t end) {
  switch (job.format) {
    case Format::kE4M3FN: return run<Format::kE4M3FN>(job, begin, end);
    case Format::kE5M2: return run<Format::kE5M2>(job, begin, end);
    case Format::kE2M1FN: return run<Format::kE2M1FN>(job, begin, end);
  }
}

}  // namespace JAX_MX_ISA
}  // namespace jax_mx

// Vectors of the instruction set that is being compiled for, by the vector extensions of GCC and Clang.
//
// Included by files that are compiled once per instruction set: JAX_MX_ISA names the namespace, JAX_MX_VECTOR_BYTES is
// the width of a register. Arithmetic is plain operators; a comparison gives a mask that `?:` selects by. Everything
// else that the kernels need of a vector is here. Nothing of the standard library is used, so that no inline function
// of it is ever compiled for a processor that is not there.

#ifndef JAX_MX_NATIVE_SIMD_H_
#define JAX_MX_NATIVE_SIMD_H_

#include <cstdint>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace jax_mx {
namespace JAX_MX_ISA {

constexpr int kLanes = JAX_MX_VECTOR_BYTES / 4;  // lanes of 32 bits
constexpr int kShortLanes = 2 * kLanes;          // lanes of 16 bits

#define JAX_MX_VECTOR(element, bytes) element __attribute__((vector_size(bytes)))
typedef JAX_MX_VECTOR(int32_t, JAX_MX_VECTOR_BYTES) Int;
typedef JAX_MX_VECTOR(float, JAX_MX_VECTOR_BYTES) Real;
typedef JAX_MX_VECTOR(int16_t, JAX_MX_VECTOR_BYTES) Short;
typedef JAX_MX_VECTOR(uint64_t, JAX_MX_VECTOR_BYTES) Pairs;           // two neighbouring lanes of an Int
typedef JAX_MX_VECTOR(uint16_t, JAX_MX_VECTOR_BYTES / 2) Halves;      // kLanes of 16 bits
typedef JAX_MX_VECTOR(uint8_t, JAX_MX_VECTOR_BYTES / 2) ShortBytes;   // kShortLanes of 8 bits
typedef JAX_MX_VECTOR(uint8_t, JAX_MX_VECTOR_BYTES / 4) Bytes;        // kLanes of 8 bits
typedef JAX_MX_VECTOR(uint8_t, JAX_MX_VECTOR_BYTES / 8) PairBytes;    // kLanes / 2 of 8 bits
typedef JAX_MX_VECTOR(uint16_t, JAX_MX_VECTOR_BYTES / 4) PairHalves;  // kLanes / 2 of 16 bits
typedef JAX_MX_VECTOR(uint32_t, JAX_MX_VECTOR_BYTES / 2) PairInts;    // kLanes / 2 of 32 bits
typedef JAX_MX_VECTOR(int16_t, 16) Eight;                             // eight elements, for reductions
#undef JAX_MX_VECTOR

// Lanes of two vectors by constant numbers. GCC has Clang's builtin only since version 12.
#ifdef __clang__
#define JAX_MX_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define JAX_MX_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype(a){__VA_ARGS__})
#endif

#define JAX_MX_INLINE inline __attribute__((always_inline))
#define JAX_MX_LAMBDA_INLINE __attribute__((always_inline))

template <typename Vector>
JAX_MX_INLINE Vector load(const void* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

template <typename Vector>
JAX_MX_INLINE void store(void* to, Vector value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

JAX_MX_INLINE Int broadcast(int32_t value) { return value - Int{}; }
JAX_MX_INLINE Short broadcast_short(int32_t value) { return static_cast<int16_t>(value) - Short{}; }

// The same constant in a register for a whole loop: GCC 12 makes a constant anew in every turn.
JAX_MX_INLINE Short kept(int32_t value) {
  Short vector = broadcast_short(value);
#if defined(__AVX512BW__)
  __asm__("" : "+v"(vector));
#elif defined(__SSE2__)
  __asm__("" : "+x"(vector));
#endif
  return vector;
}

JAX_MX_INLINE Real as_real(Int bits) { return (Real)bits; }
JAX_MX_INLINE Int as_bits(Real value) { return (Int)value; }
JAX_MX_INLINE float as_real(int32_t bits) { return __builtin_bit_cast(float, bits); }
JAX_MX_INLINE int32_t as_bits(float value) { return __builtin_bit_cast(int32_t, value); }

// Zero-extension and truncation. One step at a time: GCC 12 takes the lanes apart to convert between 8 and 32 bits.
JAX_MX_INLINE Int widen(Halves value) { return __builtin_convertvector(value, Int); }
JAX_MX_INLINE Halves widen_to_halves(Bytes value) { return __builtin_convertvector(value, Halves); }
JAX_MX_INLINE Int widen(Bytes value) { return widen(widen_to_halves(value)); }
JAX_MX_INLINE PairInts widen(PairBytes value) {
  return __builtin_convertvector(__builtin_convertvector(value, PairHalves), PairInts);
}
JAX_MX_INLINE ShortBytes to_bytes(Short value) { return __builtin_convertvector(value, ShortBytes); }
#ifdef __AVX512BW__
JAX_MX_INLINE Halves to_halves(Int value) { return (Halves)_mm512_cvtepi32_epi16((__m512i)value); }
JAX_MX_INLINE Bytes to_bytes(Int value) { return (Bytes)_mm512_cvtepi32_epi8((__m512i)value); }
#else
JAX_MX_INLINE Halves to_halves(Int value) { return __builtin_convertvector(value, Halves); }
JAX_MX_INLINE Bytes to_bytes(Int value) { return __builtin_convertvector(to_halves(value), Bytes); }
#endif

// kShortLanes elements from two times kLanes of them.
JAX_MX_INLINE Short join(Halves low, Halves high) {
#if defined(__AVX512BW__)
  return (Short)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)low), (__m256i)high, 1);
#elif defined(__AVX2__)
  return (Short)_mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)low), (__m128i)high, 1);
#else
  return Short{(int16_t)low[0],  (int16_t)low[1],  (int16_t)low[2],  (int16_t)low[3],
               (int16_t)high[0], (int16_t)high[1], (int16_t)high[2], (int16_t)high[3]};
#endif
}
JAX_MX_INLINE Short join(Int low, Int high) { return join(to_halves(low), to_halves(high)); }

// Conversion between float16 and float32 that no flushing of subnormals touches, where the processor has it.
#if defined(__AVX512BW__)
constexpr bool kConvertsFloat16 = true;
JAX_MX_INLINE Real from_float16(Halves bits) { return (Real)_mm512_cvtph_ps((__m256i)bits); }
JAX_MX_INLINE Halves to_float16(Real value) {
  return (Halves)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__AVX2__) && defined(__F16C__)
constexpr bool kConvertsFloat16 = true;
JAX_MX_INLINE Real from_float16(Halves bits) { return (Real)_mm256_cvtph_ps((__m128i)bits); }
JAX_MX_INLINE Halves to_float16(Real value) {
  return (Halves)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}
#else
constexpr bool kConvertsFloat16 = false;
JAX_MX_INLINE Real from_float16(Halves) { return Real{}; }
JAX_MX_INLINE Halves to_float16(Real) { return Halves{}; }
#endif

JAX_MX_INLINE Int first_integers() {
  Int integers = {};
  for (int i = 0; i < kLanes; ++i) integers[i] = i;
  return integers;
}

// Entries of a table that fills a register, by the low bits of each index, where the processor can.
#if defined(__AVX512BW__)
constexpr bool kLooksUp = true;
JAX_MX_INLINE Int look_up(Int table, Int indices) {
  return (Int)_mm512_permutexvar_epi32((__m512i)indices, (__m512i)table);
}
JAX_MX_INLINE Short look_up(Short table, Short indices) {
  return (Short)_mm512_permutexvar_epi16((__m512i)indices, (__m512i)table);
}
#else
constexpr bool kLooksUp = false;
JAX_MX_INLINE Int look_up(Int, Int) { return Int{}; }
JAX_MX_INLINE Short look_up(Short, Short) { return Short{}; }
#endif

// Lanes of two vectors in turn: low[0], high[0], low[1], ... in two vectors.
struct Interleaved {
  Short first, second;
};
JAX_MX_INLINE Interleaved interleave(Short low, Short high) {
#if JAX_MX_VECTOR_BYTES == 64
  return {JAX_MX_SHUFFLE(low, high, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10,
                                  42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47),
          JAX_MX_SHUFFLE(low, high, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25,
                                  57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63)};
#elif JAX_MX_VECTOR_BYTES == 32
  return {JAX_MX_SHUFFLE(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
          JAX_MX_SHUFFLE(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
#else
  return {JAX_MX_SHUFFLE(low, high, 0, 8, 1, 9, 2, 10, 3, 11),
          JAX_MX_SHUFFLE(low, high, 4, 12, 5, 13, 6, 14, 7, 15)};
#endif
}

template <typename T>
JAX_MX_INLINE T max(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
JAX_MX_INLINE T min(T a, T b) {
  return a < b ? a : b;
}

template <typename Mask>
JAX_MX_INLINE bool any(Mask mask) {
#if defined(__AVX512BW__)
  if constexpr (sizeof(mask) == 64) return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(mask) == 32) return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#endif
  uint64_t seen = 0;
  for (unsigned i = 0; i < sizeof(mask); i += 8) seen |= load<uint64_t>(reinterpret_cast<const char*>(&mask) + i);
  return seen != 0;
}

// The largest of eight non-negative elements.
JAX_MX_INLINE int32_t largest(Eight v) {
#ifdef __AVX2__
  return 0x7FFF - (_mm_cvtsi128_si32(_mm_minpos_epu16((__m128i)(0x7FFF - v))) & 0xFFFF);
#else
  v = max(v, JAX_MX_SHUFFLE(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = max(v, JAX_MX_SHUFFLE(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  v = max(v, JAX_MX_SHUFFLE(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
  return v[0];
#endif
}

}  // namespace JAX_MX_ISA
}  // namespace jax_mx

#endif  // JAX_MX_NATIVE_SIMD_H_

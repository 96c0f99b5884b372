// What the kernels are asked to do, and the kernels: one set per instruction set, chosen at run time.
//
// An array is seen as [outer, length, inner], row-major, where `length` is the quantized axis. Work is split into
// units that touch disjoint memory, so any range of them can run on any thread.

#ifndef JAX_MX_NATIVE_KERNELS_H_
#define JAX_MX_NATIVE_KERNELS_H_

#include <cstdint>

namespace jax_mx {

constexpr int kBlockSize = 32;  // elements that share a scale
constexpr int kPacked = 4;      // elements of one x4 container

enum class Format : int32_t { kE4M3FN, kE5M2, kE2M1FN };
enum class Float : int32_t { kBfloat16, kFloat16, kFloat32 };

constexpr int bits_of(Format format) { return format == Format::kE2M1FN ? 4 : 8; }
constexpr int bytes_of(Float type) { return type == Float::kFloat32 ? 4 : 2; }

// scale = max(min_scale, largest exponent field - exponent_offset), or 0xFF for a block with a NaN if `propagate_nan`.
struct Rule {
  int32_t exponent_offset;
  int32_t min_scale;
  bool propagate_nan;
};

struct Shape {
  int64_t outer, length, inner;

  int64_t blocks() const { return (length + kBlockSize - 1) / kBlockSize; }
  int64_t elements() const { return outer * length * inner; }
};

struct QuantizeJob {
  const uint16_t* x;  // [outer, length, inner] of `source`
  uint8_t* data;      // [outer, length / 4, inner] containers
  uint8_t* scale;     // [outer, blocks, inner]
  Shape shape;
  Float source;  // bfloat16 or float16
  Format format;
  Rule rule;
};

struct DequantizeJob {
  const uint8_t* data;   // [outer, length / 4, inner] containers
  const uint8_t* scale;  // [outer, blocks, inner]
  uint8_t* y;            // [outer, length, inner] of `target`
  Shape shape;
  Format format;
  Float target;
};

// Columns of one unit of work when the axis is not the last one: 32 rows of them fit the first-level cache.
constexpr int64_t kStrip = 512;

// A unit is one block of a contiguous axis, otherwise one block of up to 2 * kStrip - 1 neighbouring columns: the last
// strip takes what is left, so that it is never narrower than a vector when there are that many columns at all.
inline int64_t strips(const Shape& shape) { return shape.inner < kStrip ? 1 : shape.inner / kStrip; }
inline int64_t units(const Shape& shape) {
  return shape.inner == 0 ? 0 : shape.outer * shape.blocks() * strips(shape);
}

// Where the unit of a strip begins, as indices into elements, containers and scales, and its size.
struct Place {
  int64_t element, container, scale, rows, columns;

  Place(const Shape& shape, int64_t unit) {
    const int64_t strip = unit % strips(shape), scale_row = unit / strips(shape);
    const int64_t block = scale_row % shape.blocks();
    const int64_t row = scale_row / shape.blocks() * shape.length + block * kBlockSize;
    const int64_t column = strip * kStrip, rows_left = shape.length - block * kBlockSize;
    element = row * shape.inner + column;
    container = row / kPacked * shape.inner + column;
    scale = scale_row * shape.inner + column;
    rows = rows_left < kBlockSize ? rows_left : kBlockSize;
    columns = strip + 1 == strips(shape) ? shape.inner - column : kStrip;
  }
};

// Each runs units [begin, end) of a job.
#define JAX_MX_DECLARE_KERNELS(isa)                               \
  namespace isa {                                                 \
  void quantize(const QuantizeJob&, int64_t begin, int64_t end);     \
  void dequantize(const DequantizeJob&, int64_t begin, int64_t end); \
  }

JAX_MX_DECLARE_KERNELS(portable)
JAX_MX_DECLARE_KERNELS(avx2)
JAX_MX_DECLARE_KERNELS(avx512)
#undef JAX_MX_DECLARE_KERNELS

}  // namespace jax_mx

#endif  // JAX_MX_NATIVE_KERNELS_H_

// The XLA FFI handlers, and the same jobs behind plain C functions for tests.
//
// Custom calls `jax_mx_quantize` (x -> data, scale) and `jax_mx_dequantize` (data, scale -> y), on row-major buffers.
// Attributes: `axis` (i64), `format` (the element format's name) and, for quantize, the scale rule's numbers.

#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#ifdef JAX_MX_HAVE_X86
#include <xmmintrin.h>
#endif

#include "dispatch.h"
#include "kernels.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using jax_mx::DequantizeJob;
using jax_mx::Float;
using jax_mx::Format;
using jax_mx::Isa;
using jax_mx::QuantizeJob;
using jax_mx::Rule;
using jax_mx::Shape;

std::optional<Format> format_named(std::string_view name) {
  if (name == "float8_e4m3fn") return Format::kE4M3FN;
  if (name == "float8_e5m2") return Format::kE5M2;
  if (name == "float4_e2m1fn") return Format::kE2M1FN;
  return std::nullopt;
}

std::optional<Float> float_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::BF16: return Float::kBfloat16;
    case ffi::DataType::F16: return Float::kFloat16;
    case ffi::DataType::F32: return Float::kFloat32;
    default: return std::nullopt;
  }
}

// `x` as [outer, length, inner] around `axis`; nothing if there is no such axis.
std::optional<Shape> shape_around(ffi::AnyBuffer::Dimensions dimensions, int64_t axis) {
  if (axis < 0 || axis >= static_cast<int64_t>(dimensions.size())) return std::nullopt;
  Shape shape{1, dimensions[axis], 1};
  for (int64_t i = 0; i < axis; ++i) shape.outer *= dimensions[i];
  for (size_t i = axis + 1; i < dimensions.size(); ++i) shape.inner *= dimensions[i];
  return shape;
}

// Whether the buffers of one job belong together: a wrong module must not write out of bounds.
bool fits(const Shape& shape, Format format, ffi::AnyBuffer data, ffi::AnyBuffer scale) {
  const ffi::DataType container = bits_of(format) == 4 ? ffi::DataType::U16 : ffi::DataType::U32;
  return shape.length % jax_mx::kPacked == 0 && data.element_type() == container &&
         static_cast<int64_t>(data.element_count()) * jax_mx::kPacked == shape.elements() &&
         scale.element_type() == ffi::DataType::U8 &&
         static_cast<int64_t>(scale.element_count()) == shape.outer * shape.blocks() * shape.inner;
}

template <typename Job>
void run_on_pool(const Job& job, ffi::ThreadPool& pool) {
  jax_mx::run(job, jax_mx::best_isa(), pool.num_threads(), [&](auto task) { pool.Schedule(std::move(task)); });
}

ffi::Error quantize(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> data,
                    ffi::Result<ffi::AnyBuffer> scale, int64_t axis, std::string_view format_name,
                    int32_t exponent_offset, int32_t min_scale, bool propagate_nan) {
  const auto shape = shape_around(x.dimensions(), axis);
  const auto format = format_named(format_name);
  const auto source = float_of(x.element_type());
  if (!shape || !format || !source || *source == Float::kFloat32 || !fits(*shape, *format, *data, *scale)) {
    return ffi::Error::InvalidArgument("jax_mx_quantize: operand, results and attributes do not belong together");
  }
  const QuantizeJob job{static_cast<const uint16_t*>(x.untyped_data()),
                        static_cast<uint8_t*>(data->untyped_data()),
                        static_cast<uint8_t*>(scale->untyped_data()),
                        *shape, *source, *format, Rule{exponent_offset, min_scale, propagate_nan}};
  run_on_pool(job, pool);
  return ffi::Error::Success();
}

ffi::Error dequantize(ffi::ThreadPool pool, ffi::AnyBuffer data, ffi::AnyBuffer scale, ffi::Result<ffi::AnyBuffer> y,
                      int64_t axis, std::string_view format_name) {
  const auto shape = shape_around(y->dimensions(), axis);
  const auto format = format_named(format_name);
  const auto target = float_of(y->element_type());
  if (!shape || !format || !target || !fits(*shape, *format, data, scale)) {
    return ffi::Error::InvalidArgument("jax_mx_dequantize: operands, result and attributes do not belong together");
  }
  const DequantizeJob job{static_cast<const uint8_t*>(data.untyped_data()),
                          static_cast<const uint8_t*>(scale.untyped_data()),
                          static_cast<uint8_t*>(y->untyped_data()), *shape, *format, *target};
  run_on_pool(job, pool);
  return ffi::Error::Success();
}

// Makes the thread, and those it starts, take subnormals for zero and flush them to it, as XLA does.
void flush_subnormals() {
#ifdef JAX_MX_HAVE_X86
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

template <typename Job>
int run_on_threads(const Job& job, int32_t isa, int32_t threads, bool flush) {
  if (!jax_mx::supported(static_cast<Isa>(isa))) return 1;
  if (flush) {
    std::thread([&] { flush_subnormals(), run_on_threads(job, isa, threads, false); }).join();
    return 0;
  }
  std::vector<std::thread> started;
  jax_mx::run(job, static_cast<Isa>(isa), threads, [&](const auto& task) { started.emplace_back(task); });
  for (std::thread& thread : started) thread.join();
  return 0;
}

}  // namespace

#define JAX_MX_EXPORT extern "C" __attribute__((visibility("default")))

#pragma GCC visibility push(default)
XLA_FFI_DEFINE_HANDLER_SYMBOL(jax_mx_quantize, quantize,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int64_t>("axis")
                                  .Attr<std::string_view>("format")
                                  .Attr<int32_t>("exponent_offset")
                                  .Attr<int32_t>("min_scale")
                                  .Attr<bool>("propagate_nan"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(jax_mx_dequantize, dequantize,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int64_t>("axis")
                                  .Attr<std::string_view>("format"));
#pragma GCC visibility pop

// 0 portable, 1 AVX2, 2 AVX-512: what the handlers use here.
JAX_MX_EXPORT int32_t jax_mx_best_isa() { return static_cast<int32_t>(jax_mx::best_isa()); }

// Runs a job on memory of the caller's, with one instruction set, on `threads` threads, where floats flush subnormals
// if `flush` is not 0; 1 if there is no such instruction set.
JAX_MX_EXPORT int jax_mx_quantize_raw(const QuantizeJob* job, int32_t isa, int32_t threads, int32_t flush) {
  return run_on_threads(*job, isa, threads, flush != 0);
}

JAX_MX_EXPORT int jax_mx_dequantize_raw(const DequantizeJob* job, int32_t isa, int32_t threads, int32_t flush) {
  return run_on_threads(*job, isa, threads, flush != 0);
}

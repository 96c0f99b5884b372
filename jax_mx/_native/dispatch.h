// Runs a job with the best kernels of this processor, on as many threads as it is worth.

#ifndef JAX_MX_NATIVE_DISPATCH_H_
#define JAX_MX_NATIVE_DISPATCH_H_

#include <algorithm>
#include <cstdint>

#include "kernels.h"
#include "memory.h"
#include "parallel.h"

namespace jax_mx {

enum class Isa : int32_t { kPortable, kAvx2, kAvx512 };

// Whether this library has kernels for `isa` and this processor and its operating system can run them.
inline bool supported(Isa isa) {
#ifdef JAX_MX_HAVE_X86
  // The features that setup.py compiles each set for.
  switch (isa) {
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case Isa::kAvx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case Isa::kPortable: return true;
  }
#endif
  return isa == Isa::kPortable;
}

inline Isa best_isa() {
  static const Isa best = supported(Isa::kAvx512) ? Isa::kAvx512 : supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kPortable;
  return best;
}

inline void run_units(const QuantizeJob& job, Isa isa, int64_t begin, int64_t end) {
#ifdef JAX_MX_HAVE_X86
  if (isa == Isa::kAvx512) return avx512::quantize(job, begin, end);
  if (isa == Isa::kAvx2) return avx2::quantize(job, begin, end);
#endif
  portable::quantize(job, begin, end);
}

inline void run_units(const DequantizeJob& job, Isa isa, int64_t begin, int64_t end) {
#ifdef JAX_MX_HAVE_X86
  if (isa == Isa::kAvx512) return avx512::dequantize(job, begin, end);
  if (isa == Isa::kAvx2) return avx2::dequantize(job, begin, end);
#endif
  portable::dequantize(job, begin, end);
}

inline void prepare_output(const QuantizeJob& job) {
  use_huge_pages(job.data, job.shape.elements() * bits_of(job.format) / 8);
}

inline void prepare_output(const DequantizeJob& job) {
  use_huge_pages(job.y, job.shape.elements() * bytes_of(job.target));
}

// Elements of a task: some tens of microseconds, well above what handing it to another thread costs.
constexpr int64_t kGrain = 64 * 1024;

template <typename Job, typename Schedule>
void run(const Job& job, Isa isa, int64_t threads, Schedule&& schedule) {
  const int64_t count = units(job.shape);
  if (count == 0) return;
  prepare_output(job);
  const int64_t grain = std::max<int64_t>(1, kGrain * count / std::max<int64_t>(1, job.shape.elements()));
  parallel_for(count, grain, threads, schedule,
               [&](int64_t begin, int64_t end) { run_units(job, isa, begin, end); });
}

}  // namespace jax_mx

#endif  // JAX_MX_NATIVE_DISPATCH_H_

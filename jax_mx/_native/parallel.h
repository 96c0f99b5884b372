// Splits work over threads that someone else owns.

#ifndef JAX_MX_NATIVE_PARALLEL_H_
#define JAX_MX_NATIVE_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace jax_mx {

// Runs `body(begin, end)` over [0, count) in chunks of `grain`, on this thread and up to `threads - 1` tasks given to
// `schedule`, and returns when all is done.
//
// Each worker goes through a span of its own, then helps with the others': workers that write side by side would fault
// in, and the system would clear, the same huge page twice.
//
// This thread takes chunks as well and waits for none that has not begun, so it returns even if no task ever gets a
// thread: the caller may be one of the pool's own threads. A task that begins late finds no chunk left and must not
// touch `body`; what it reads is shared for that reason.
template <typename Schedule, typename Body>
void parallel_for(int64_t count, int64_t grain, int64_t threads, Schedule&& schedule, const Body& body) {
  const int64_t chunks = (count + grain - 1) / grain, spans = std::min(threads, chunks);
  if (spans <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  struct Progress {
    explicit Progress(int64_t spans) : taken(spans) {}
    std::vector<std::atomic<int64_t>> taken;  // chunks taken of each span
    std::atomic<int64_t> workers{0}, done{0};
  };
  const auto progress = std::make_shared<Progress>(spans);
  const auto work = [progress, chunks, spans, count, grain, &body] {
    const int64_t own = progress->workers.fetch_add(1, std::memory_order_relaxed);
    for (int64_t i = 0; i < spans; ++i) {
      const int64_t span = (own + i) % spans, first = span * chunks / spans, last = (span + 1) * chunks / spans;
      for (int64_t chunk; (chunk = first + progress->taken[span].fetch_add(1, std::memory_order_relaxed)) < last;) {
        body(chunk * grain, std::min(count, (chunk + 1) * grain));
        progress->done.fetch_add(1, std::memory_order_release);
      }
    }
  };
  for (int64_t i = 1; i < spans; ++i) schedule(work);
  work();
  while (progress->done.load(std::memory_order_acquire) < chunks) std::this_thread::yield();
}

}  // namespace jax_mx

#endif  // JAX_MX_NATIVE_PARALLEL_H_

// Splits work over threads that someone else owns.

#ifndef JAX_MX_NATIVE_PARALLEL_H_
#define JAX_MX_NATIVE_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace jax_mx {

// Runs `body(begin, end)` over [0, count) in chunks of `grain`, on this thread and up to `threads - 1` tasks given to
// `schedule`, and returns when all is done.
//
// This thread takes chunks as well and waits for none that has not begun, so it returns even if no task ever gets a
// thread: the caller may be one of the pool's own threads. A task that begins late finds no chunk left and must not
// touch `body`; what it reads is shared for that reason.
template <typename Schedule, typename Body>
void parallel_for(int64_t count, int64_t grain, int64_t threads, Schedule&& schedule, const Body& body) {
  const int64_t chunks = (count + grain - 1) / grain;
  if (chunks <= 1 || threads <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  struct Progress {
    std::atomic<int64_t> taken{0}, done{0};
  };
  const auto progress = std::make_shared<Progress>();
  const auto work = [progress, chunks, count, grain, &body] {
    for (int64_t chunk; (chunk = progress->taken.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      body(chunk * grain, std::min(count, (chunk + 1) * grain));
      progress->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t i = 1; i < std::min(threads, chunks); ++i) schedule(work);
  work();
  while (progress->done.load(std::memory_order_acquire) < chunks) std::this_thread::yield();
}

}  // namespace jax_mx

#endif  // JAX_MX_NATIVE_PARALLEL_H_

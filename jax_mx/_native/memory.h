// Asks for huge pages: a fresh output is otherwise faulted in 4 KiB at a time, which takes longer than the arithmetic.

#ifndef JAX_MX_NATIVE_MEMORY_H_
#define JAX_MX_NATIVE_MEMORY_H_

#include <cstddef>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace jax_mx {

// Only advice, about the whole 2 MiB pages inside the memory: where the system takes none, nothing changes.
inline void use_huge_pages(void* memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHuge = uintptr_t{1} << 21;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + kHuge - 1) & ~(kHuge - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + static_cast<uintptr_t>(bytes)) & ~(kHuge - 1);
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory, (void)bytes;
#endif
}

}  // namespace jax_mx

#endif  // JAX_MX_NATIVE_MEMORY_H_

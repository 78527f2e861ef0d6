/// All atomics of the project. On global memory with their order spelled at the call; GPU scope: one
/// device. Those named block_ are relaxed, on memory that one block shares.
#pragma once

#include "core/platform.cuh"

#if !DG_GPU
#include <atomic>
#endif

namespace dg {

enum class Order { relaxed, acquire, release, acquire_release };

#if DG_GPU

#define DG_GLOBAL(pointer) "l"(__cvta_generic_to_global(pointer))

template <Order order>
DG_FN u32 atomic_load(const u32* from) {
  u32 word;
  if constexpr (order == Order::relaxed)
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : DG_GLOBAL(from) : "memory");
  else
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : DG_GLOBAL(from) : "memory");
  return word;
}

template <Order order>
DG_FN u64 atomic_load(const u64* from) {
  u64 word;
  if constexpr (order == Order::relaxed)
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : DG_GLOBAL(from) : "memory");
  else
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : DG_GLOBAL(from) : "memory");
  return word;
}

template <Order order>
DG_FN void atomic_store(u32* to, u32 word) {
  if constexpr (order == Order::relaxed)
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::DG_GLOBAL(to), "r"(word) : "memory");
  else
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::DG_GLOBAL(to), "r"(word) : "memory");
}

template <Order order>
DG_FN void atomic_store(u64* to, u64 word) {
  if constexpr (order == Order::relaxed)
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::DG_GLOBAL(to), "l"(word) : "memory");
  else
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::DG_GLOBAL(to), "l"(word) : "memory");
}

/// Stores `desired` where `expected` stands; returns what stood there.
template <Order order>
DG_FN u32 atomic_swap_if(u32* at, u32 expected, u32 desired) {
  static_assert(order == Order::relaxed);
  u32 old;
  asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : DG_GLOBAL(at), "r"(expected), "r"(desired)
               : "memory");
  return old;
}

template <Order order>
DG_FN u64 atomic_swap_if(u64* at, u64 expected, u64 desired) {
  u64 old;
  if constexpr (order == Order::relaxed)
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : DG_GLOBAL(at), "l"(expected), "l"(desired)
                 : "memory");
  else
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : DG_GLOBAL(at), "l"(expected), "l"(desired)
                 : "memory");
  return old;
}

/// Adds and returns what stood there before.
template <Order order>
DG_FN u64 atomic_add(u64* at, u64 term) {
  static_assert(order == Order::relaxed);
  u64 old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(old)
               : DG_GLOBAL(at), "l"(term)
               : "memory");
  return old;
}

/// As `atomic_load`, of what stood there a while ago: the L1 cache may answer.
DG_FN u64 atomic_load_stale(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.cta.global.u64 %0, [%1];" : "=l"(word) : DG_GLOBAL(from) : "memory");
  return word;
}

template <Order order>
DG_FN void atomic_or(u32* at, u32 bits) {
  static_assert(order == Order::relaxed);
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::DG_GLOBAL(at), "r"(bits) : "memory");
}

/// Keeps the bits of `mask`; returns what stood there before.
template <Order order>
DG_FN u32 atomic_and(u32* at, u32 mask) {
  static_assert(order == Order::relaxed);
  u32 old;
  asm volatile("atom.relaxed.gpu.global.and.b32 %0, [%1], %2;"
               : "=r"(old)
               : DG_GLOBAL(at), "r"(mask)
               : "memory");
  return old;
}

template <Order order>
DG_FN void atomic_add(double* at, double term) {
  static_assert(order == Order::relaxed);
  asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" ::DG_GLOBAL(at), "d"(term) : "memory");
}

template <Order order>
DG_FN void atomic_min(u64* at, u64 term) {
  static_assert(order == Order::relaxed);
  asm volatile("red.relaxed.gpu.global.min.u64 [%0], %1;" ::DG_GLOBAL(at), "l"(term) : "memory");
}

template <Order order>
DG_FN void atomic_max(u64* at, u64 term) {
  static_assert(order == Order::relaxed);
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::DG_GLOBAL(at), "l"(term) : "memory");
}

template <Order order>
DG_FN void atomic_or(u64* at, u64 bits) {
  static_assert(order == Order::relaxed);
  asm volatile("red.relaxed.gpu.global.or.b64 [%0], %1;" ::DG_GLOBAL(at), "l"(bits) : "memory");
}

#if __CUDA_ARCH__ >= 900
/// The 128-bit compare-and-swap of a pair; `first` and `second` become what stood there.
DG_FN void atomic_swap_pair_if(u64* at, u64& first, u64& second, u64 new_first, u64 new_second) {
  asm volatile(
      "{\n .reg .b128 expected, desired, old;\n"
      " mov.b128 expected, {%0, %1};\n mov.b128 desired, {%3, %4};\n"
      " atom.relaxed.gpu.global.cas.b128 old, [%2], expected, desired;\n"
      " mov.b128 {%0, %1}, old;\n}"
      : "+l"(first), "+l"(second)
      : DG_GLOBAL(at), "l"(new_first), "l"(new_second)
      : "memory");
}
#endif

#undef DG_GLOBAL

#define DG_SHARED(pointer) "r"(static_cast<u32>(__cvta_generic_to_shared(pointer)))

DG_FN u64 block_load(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.cta.shared.u64 %0, [%1];" : "=l"(word) : DG_SHARED(from) : "memory");
  return word;
}

DG_FN u64 block_swap_if(u64* at, u64 expected, u64 desired) {
  u64 old;
  asm volatile("atom.relaxed.cta.shared.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : DG_SHARED(at), "l"(expected), "l"(desired)
               : "memory");
  return old;
}

DG_FN void block_store(u32* to, u32 word) {
  asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::DG_SHARED(to), "r"(word) : "memory");
}

DG_FN void block_store(u64* to, u64 word) {
  asm volatile("st.relaxed.cta.shared.u64 [%0], %1;" ::DG_SHARED(to), "l"(word) : "memory");
}

/// Adds and returns what stood there before.
DG_FN u32 block_fetch_add(u32* at, u32 term) {
  u32 old;
  asm volatile("atom.relaxed.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : DG_SHARED(at), "r"(term)
               : "memory");
  return old;
}

DG_FN void block_or(u32* at, u32 bits) {
  asm volatile("red.relaxed.cta.shared.or.b32 [%0], %1;" ::DG_SHARED(at), "r"(bits) : "memory");
}

/// As `block_or`; returns what stood there before.
DG_FN u32 block_fetch_or(u32* at, u32 bits) {
  u32 old;
  asm volatile("atom.relaxed.cta.shared.or.b32 %0, [%1], %2;"
               : "=r"(old)
               : DG_SHARED(at), "r"(bits)
               : "memory");
  return old;
}

/// In halves: there are no atomics of 64 bits on shared memory but a loop around compare-and-swap.
/// Nobody reads the sum before a barrier.
DG_FN void block_add(u64* at, u64 term) {
  const u32 low = static_cast<u32>(term);
  u32 old;
  asm volatile("atom.relaxed.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : DG_SHARED(at), "r"(low)
               : "memory");
  const u32 high = static_cast<u32>(term >> 32) + (old + low < low);
  if (high != 0)
    asm volatile("red.relaxed.cta.shared.add.u32 [%0 + 4], %1;" ::DG_SHARED(at), "r"(high)
                 : "memory");
}

DG_FN void block_add(double* at, double term) {
  asm volatile("red.relaxed.cta.shared.add.f64 [%0], %1;" ::DG_SHARED(at), "d"(term) : "memory");
}

DG_FN void block_min(u64* at, u64 term) {
  asm volatile("red.relaxed.cta.shared.min.u64 [%0], %1;" ::DG_SHARED(at), "l"(term) : "memory");
}

DG_FN void block_max(u64* at, u64 term) {
  asm volatile("red.relaxed.cta.shared.max.u64 [%0], %1;" ::DG_SHARED(at), "l"(term) : "memory");
}

#undef DG_SHARED

#else

constexpr std::memory_order host_order(Order order) {
  switch (order) {
    case Order::acquire:
      return std::memory_order_acquire;
    case Order::release:
      return std::memory_order_release;
    case Order::acquire_release:
      return std::memory_order_acq_rel;
    default:
      return std::memory_order_relaxed;
  }
}

template <Order order, class Word>
Word atomic_load(const Word* from) {
  return std::atomic_ref<Word>(*const_cast<Word*>(from)).load(host_order(order));
}

template <Order order, class Word>
void atomic_store(Word* to, Word word) {
  std::atomic_ref<Word>(*to).store(word, host_order(order));
}

template <Order order, class Word>
Word atomic_swap_if(Word* at, Word expected, Word desired) {
  // A failed swap publishes nothing, so it needs the acquiring half of the order only.
  constexpr Order failed = order == Order::acquire_release ? Order::acquire : order;
  std::atomic_ref<Word>(*at).compare_exchange_strong(expected, desired, host_order(order),
                                                     host_order(failed));
  return expected;
}

template <Order order>
u64 atomic_add(u64* at, u64 term) {
  return std::atomic_ref<u64>(*at).fetch_add(term, host_order(order));
}

inline u64 atomic_load_stale(const u64* from) { return atomic_load<Order::relaxed>(from); }

template <Order order>
void atomic_or(u32* at, u32 bits) {
  std::atomic_ref<u32>(*at).fetch_or(bits, host_order(order));
}

template <Order order>
u32 atomic_and(u32* at, u32 mask) {
  return std::atomic_ref<u32>(*at).fetch_and(mask, host_order(order));
}

template <Order order>
void atomic_add(double* at, double term) {
  std::atomic_ref<double>(*at).fetch_add(term, host_order(order));
}

template <Order order>
void atomic_or(u64* at, u64 bits) {
  std::atomic_ref<u64>(*at).fetch_or(bits, host_order(order));
}

template <Order order>
void atomic_min(u64* at, u64 term) {
  u64 seen = atomic_load<Order::relaxed>(at);
  while (term < seen) {
    const u64 found = atomic_swap_if<order>(at, seen, term);
    if (found == seen) return;
    seen = found;
  }
}

template <Order order>
void atomic_max(u64* at, u64 term) {
  u64 seen = atomic_load<Order::relaxed>(at);
  while (term > seen) {
    const u64 found = atomic_swap_if<order>(at, seen, term);
    if (found == seen) return;
    seen = found;
  }
}

inline u64 block_load(const u64* from) { return atomic_load<Order::relaxed>(from); }
inline u64 block_swap_if(u64* at, u64 expected, u64 desired) {
  return atomic_swap_if<Order::relaxed>(at, expected, desired);
}
template <class Word>
void block_store(Word* to, Word word) {
  atomic_store<Order::relaxed>(to, word);
}
inline u32 block_fetch_add(u32* at, u32 term) {
  return std::atomic_ref<u32>(*at).fetch_add(term, std::memory_order_relaxed);
}
inline u32 block_fetch_or(u32* at, u32 bits) {
  return std::atomic_ref<u32>(*at).fetch_or(bits, std::memory_order_relaxed);
}
inline void block_or(u32* at, u32 bits) { atomic_or<Order::relaxed>(at, bits); }
inline void block_add(u64* at, u64 term) { atomic_add<Order::relaxed>(at, term); }
inline void block_add(double* at, double term) { atomic_add<Order::relaxed>(at, term); }
inline void block_min(u64* at, u64 term) { atomic_min<Order::relaxed>(at, term); }
inline void block_max(u64* at, u64 term) { atomic_max<Order::relaxed>(at, term); }

#endif

}  // namespace dg

/// Atomics on memory that one block shares; all are relaxed.
#pragma once

#include "core/atomic.cuh"

namespace dg {

#if DG_GPU

#define DG_SHARED(pointer) "r"(static_cast<u32>(__cvta_generic_to_shared(pointer)))

DG_FN u32 block_load(const u32* from) {
  u32 word;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(word) : DG_SHARED(from) : "memory");
  return word;
}

DG_FN u64 block_load(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.cta.shared.u64 %0, [%1];" : "=l"(word) : DG_SHARED(from) : "memory");
  return word;
}

/// Stores `desired` where `expected` stands; returns what stood there.
DG_FN u32 block_swap_if(u32* at, u32 expected, u32 desired) {
  u32 old;
  asm volatile("atom.relaxed.cta.shared.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : DG_SHARED(at), "r"(expected), "r"(desired)
               : "memory");
  return old;
}

DG_FN u64 block_swap_if(u64* at, u64 expected, u64 desired) {
  u64 old;
  asm volatile("atom.relaxed.cta.shared.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : DG_SHARED(at), "l"(expected), "l"(desired)
               : "memory");
  return old;
}

/// Stores and returns what stood there before.
DG_FN u32 block_exchange(u32* at, u32 word) {
  u32 old;
  asm volatile("atom.relaxed.cta.shared.exch.b32 %0, [%1], %2;"
               : "=r"(old)
               : DG_SHARED(at), "r"(word)
               : "memory");
  return old;
}

DG_FN u64 block_exchange(u64* at, u64 word) {
  u64 old;
  asm volatile("atom.relaxed.cta.shared.exch.b64 %0, [%1], %2;"
               : "=l"(old)
               : DG_SHARED(at), "l"(word)
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

DG_FN void block_add(u32* at, u32 term) {
  asm volatile("red.relaxed.cta.shared.add.u32 [%0], %1;" ::DG_SHARED(at), "r"(term) : "memory");
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

template <class Word>
Word block_load(const Word* from) {
  return atomic_load<Order::relaxed>(from);
}
template <class Word>
Word block_swap_if(Word* at, Word expected, Word desired) {
  return atomic_swap_if<Order::relaxed>(at, expected, desired);
}
template <class Word>
Word block_exchange(Word* at, Word word) {
  return atomic_exchange<Order::relaxed>(at, word);
}
template <class Word>
void block_store(Word* to, Word word) {
  atomic_store<Order::relaxed>(to, word);
}
inline u32 block_fetch_add(u32* at, u32 term) { return atomic_fetch_add<Order::relaxed>(at, term); }
inline u32 block_fetch_or(u32* at, u32 bits) { return atomic_fetch_or<Order::relaxed>(at, bits); }
inline void block_or(u32* at, u32 bits) { atomic_or<Order::relaxed>(at, bits); }
inline void block_add(u32* at, u32 term) { atomic_add<Order::relaxed>(at, term); }
inline void block_add(u64* at, u64 term) { atomic_add<Order::relaxed>(at, term); }
inline void block_add(double* at, double term) { atomic_add<Order::relaxed>(at, term); }
inline void block_min(u64* at, u64 term) { atomic_min<Order::relaxed>(at, term); }
inline void block_max(u64* at, u64 term) { atomic_max<Order::relaxed>(at, term); }

#endif

}  // namespace dg

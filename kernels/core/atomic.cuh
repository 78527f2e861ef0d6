/// Atomics on global memory, with their order spelled at the call; GPU scope: one device. Those of
/// the memory that a block shares are in core/block_atomic.cuh.
///
///   atomic_load, atomic_store            u32 u64
///   atomic_swap_if, atomic_exchange      u32 u64, return what stood there
///   atomic_fetch_add, _or, _and          u32 u64, return what stood there; adds to a double, too
///   atomic_add, _or, _min, _max          return nothing; relaxed; min and max of signed words, too
///   atomic_swap_pair_if                  two u64 at once, from sm_90 on
///   atomic_swap_if of u128               where DG_KEY_SWAP says so; load_settled reads beside it
#pragma once

#include "core/wide_word.cuh"

#if !DG_GPU
#include <atomic>
#include <thread>
#include <type_traits>
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

/// As `atomic_load`, of what stood there a while ago: the L1 cache may answer.
DG_FN u64 atomic_load_stale(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.cta.global.u64 %0, [%1];" : "=l"(word) : DG_GLOBAL(from) : "memory");
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

/// INSTRUCTION with PTX's name of `order`, which is part of an instruction's text.
#define DG_ORDERED(INSTRUCTION, ...)          \
  if constexpr (order == Order::relaxed)      \
    INSTRUCTION("relaxed", __VA_ARGS__);      \
  else if constexpr (order == Order::acquire) \
    INSTRUCTION("acquire", __VA_ARGS__);      \
  else if constexpr (order == Order::release) \
    INSTRUCTION("release", __VA_ARGS__);      \
  else                                        \
    INSTRUCTION("acq_rel", __VA_ARGS__)

#define DG_SWAP(order, operation, letter)                                  \
  asm volatile("atom." order ".gpu.global." operation " %0, [%1], %2, %3;" \
               : "=" letter(old)                                           \
               : DG_GLOBAL(at), letter(expected), letter(desired)          \
               : "memory")
#define DG_FETCH(order, operation, letter)                             \
  asm volatile("atom." order ".gpu.global." operation " %0, [%1], %2;" \
               : "=" letter(old)                                       \
               : DG_GLOBAL(at), letter(word)                           \
               : "memory")

#define DG_SWAP_IF(Word, operation, letter)                          \
  template <Order order>                                             \
  DG_FN Word atomic_swap_if(Word* at, Word expected, Word desired) { \
    Word old;                                                        \
    DG_ORDERED(DG_SWAP, operation, letter);                          \
    return old;                                                      \
  }
#define DG_FETCHING(name, Word, operation, letter) \
  template <Order order>                           \
  DG_FN Word name(Word* at, Word word) {           \
    Word old;                                      \
    DG_ORDERED(DG_FETCH, operation, letter);       \
    return old;                                    \
  }
#define DG_REDUCING(name, Word, operation, letter)                                              \
  template <Order order>                                                                        \
  DG_FN void name(Word* at, Word word) {                                                        \
    static_assert(order == Order::relaxed);                                                     \
    asm volatile("red.relaxed.gpu.global." operation " [%0], %1;" ::DG_GLOBAL(at), letter(word) \
                 : "memory");                                                                   \
  }

// Stores `desired` where `expected` stands; returns what stood there.
DG_SWAP_IF(u32, "cas.b32", "r")
DG_SWAP_IF(u64, "cas.b64", "l")

// These return what stood there before.
DG_FETCHING(atomic_exchange, u32, "exch.b32", "r")
DG_FETCHING(atomic_exchange, u64, "exch.b64", "l")
DG_FETCHING(atomic_fetch_add, u32, "add.u32", "r")
DG_FETCHING(atomic_fetch_add, u64, "add.u64", "l")
DG_FETCHING(atomic_fetch_add, double, "add.f64", "d")
DG_FETCHING(atomic_fetch_or, u32, "or.b32", "r")
DG_FETCHING(atomic_fetch_or, u64, "or.b64", "l")
DG_FETCHING(atomic_fetch_and, u32, "and.b32", "r")
DG_FETCHING(atomic_fetch_and, u64, "and.b64", "l")

DG_REDUCING(atomic_add, u32, "add.u32", "r")
DG_REDUCING(atomic_add, u64, "add.u64", "l")
DG_REDUCING(atomic_add, float, "add.f32", "f")
DG_REDUCING(atomic_add, double, "add.f64", "d")
DG_REDUCING(atomic_or, u32, "or.b32", "r")
DG_REDUCING(atomic_or, u64, "or.b64", "l")
DG_REDUCING(atomic_min, u32, "min.u32", "r")
DG_REDUCING(atomic_min, u64, "min.u64", "l")
DG_REDUCING(atomic_min, i32, "min.s32", "r")
DG_REDUCING(atomic_min, i64, "min.s64", "l")
DG_REDUCING(atomic_max, u32, "max.u32", "r")
DG_REDUCING(atomic_max, u64, "max.u64", "l")
DG_REDUCING(atomic_max, i32, "max.s32", "r")
DG_REDUCING(atomic_max, i64, "max.s64", "l")

#undef DG_REDUCING
#undef DG_FETCHING
#undef DG_SWAP_IF
#undef DG_FETCH
#undef DG_SWAP
#undef DG_ORDERED

#if DG_WIDE_SWAP
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

template <Order order>
DG_FN u128 atomic_swap_if(u128* at, u128 expected, u128 desired) {
  static_assert(order == Order::relaxed);
  atomic_swap_pair_if(&at->low, expected.low, expected.high, desired.low, desired.high);
  return expected;
}
#endif

#undef DG_GLOBAL

/// Lets others go on, the longer the more often this lane has waited: `round` counts from 0.
DG_FN void back_off(u32 round) { __nanosleep(round < 6 ? 32u << round : 2048u); }

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

inline u64 atomic_load_stale(const u64* from) { return atomic_load<Order::relaxed>(from); }

template <Order order, class Word>
void atomic_store(Word* to, std::type_identity_t<Word> word) {
  std::atomic_ref<Word>(*to).store(word, host_order(order));
}

template <Order order, class Word>
Word atomic_swap_if(Word* at, std::type_identity_t<Word> expected,
                    std::type_identity_t<Word> desired) {
  // A failed swap publishes nothing, so it needs the acquiring half of the order only.
  constexpr Order failed = order == Order::acquire_release ? Order::acquire
                           : order == Order::release       ? Order::relaxed
                                                           : order;
  static_assert(std::atomic_ref<Word>::is_always_lock_free);
  std::atomic_ref<Word>(*at).compare_exchange_strong(expected, desired, host_order(order),
                                                     host_order(failed));
  return expected;
}

#if DG_KEY_SWAP
/// By the CPU's instruction, which orders all: compilers call a library for this, which may lock.
template <Order order>
u128 atomic_swap_if(u128* at, u128 expected, u128 desired) {
#if defined(__x86_64__)
  asm volatile("lock cmpxchg16b %0"
               : "+m"(*at), "+a"(expected.low), "+d"(expected.high)
               : "b"(desired.low), "c"(desired.high)
               : "cc", "memory");
  return expected;
#else
  // Without a store the pair might be torn: what stood there goes back, then.
  u64 low, high, differs;
  u32 failed;
  asm volatile(
      "1: ldaxp %[low], %[high], %[at]\n"
      " eor %[differs], %[low], %[old_low]\n"
      " cmp %[high], %[old_high]\n"
      " ccmp %[differs], #0, #0, eq\n"
      " b.ne 2f\n"
      " stlxp %w[failed], %[new_low], %[new_high], %[at]\n"
      " cbnz %w[failed], 1b\n"
      " b 3f\n"
      "2: stlxp %w[failed], %[low], %[high], %[at]\n"
      " cbnz %w[failed], 1b\n"
      "3:\n"
      : [low] "=&r"(low), [high] "=&r"(high), [differs] "=&r"(differs), [failed] "=&r"(failed),
        [at] "+Q"(*at)
      : [old_low] "r"(expected.low), [old_high] "r"(expected.high), [new_low] "r"(desired.low),
        [new_high] "r"(desired.high)
      : "cc", "memory");
  return {low, high};
#endif
}
#endif

/// A word of 16 bytes whose halves change together, and once in a launch: by two halves that stood there at
/// the same time.
inline u128 load_settled(const u128* from) {
  while (true) {
    const u64 high = atomic_load<Order::acquire>(&from->high);
    const u64 low = atomic_load<Order::acquire>(&from->low);
    if (atomic_load<Order::relaxed>(&from->high) == high) return {low, high};
  }
}

template <Order order, class Word>
Word atomic_exchange(Word* at, std::type_identity_t<Word> word) {
  return std::atomic_ref<Word>(*at).exchange(word, host_order(order));
}

template <Order order, class Word>
Word atomic_fetch_add(Word* at, std::type_identity_t<Word> word) {
  return std::atomic_ref<Word>(*at).fetch_add(word, host_order(order));
}

template <Order order, class Word>
Word atomic_fetch_or(Word* at, std::type_identity_t<Word> word) {
  return std::atomic_ref<Word>(*at).fetch_or(word, host_order(order));
}

template <Order order, class Word>
Word atomic_fetch_and(Word* at, std::type_identity_t<Word> word) {
  return std::atomic_ref<Word>(*at).fetch_and(word, host_order(order));
}

template <Order order, class Word>
void atomic_add(Word* at, std::type_identity_t<Word> word) {
  atomic_fetch_add<order>(at, word);
}

template <Order order, class Word>
void atomic_or(Word* at, std::type_identity_t<Word> word) {
  atomic_fetch_or<order>(at, word);
}

template <Order order, class Word>
void atomic_min(Word* at, std::type_identity_t<Word> word) {
  Word seen = atomic_load<Order::relaxed>(at);
  while (word < seen) {
    const Word found = atomic_swap_if<order>(at, seen, word);
    if (found == seen) return;
    seen = found;
  }
}

template <Order order, class Word>
void atomic_max(Word* at, std::type_identity_t<Word> word) {
  Word seen = atomic_load<Order::relaxed>(at);
  while (word > seen) {
    const Word found = atomic_swap_if<order>(at, seen, word);
    if (found == seen) return;
    seen = found;
  }
}

/// Lets others go on: at first those of other cores, then any that wait for this one.
inline void back_off(u32 round) {
#if defined(__x86_64__)
  if (round < 2) return __builtin_ia32_pause();
#elif defined(__aarch64__)
  if (round < 2) {
    asm volatile("yield");
    return;
  }
#endif
  std::this_thread::yield();
}

#endif

}  // namespace dg

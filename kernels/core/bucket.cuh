/// Buckets of 64 aligned bytes, read in quarters of 16 bytes: one load of one lane, four lanes for
/// a bucket.
#pragma once

#include "core/atomic.cuh"
#include "core/platform.cuh"

namespace dg {

inline constexpr u32 kBucketBytes = 64;
inline constexpr u32 kQuarterBytes = 16;
inline constexpr u32 kQuarters = kBucketBytes / kQuarterBytes;

struct alignas(kQuarterBytes) Quarter {
  u32 word[4];
};

#if !DG_GPU
/// The compiler's vectors of 16 bytes, which every CPU has.
using TwoWords = u64 __attribute__((vector_size(kQuarterBytes)));
using FourWords = u32 __attribute__((vector_size(kQuarterBytes)));
#endif

/// How a walk reads buckets.
enum class Access {
  /// Nobody writes during the launch: any cache may answer. What is read once stays in no L1 cache.
  frozen,
  /// The same, and the line is wanted again soon: the L2 cache keeps it longer.
  staying,
  /// The same, and the line is the first to leave the L2 cache.
  leaving,
  /// Other tiles write: relaxed atomic loads of `Unit`, which bypass the L1 cache.
  shared,
  /// The same, and seven of ten lines are the last to leave the L2 cache.
  lasting,
  /// Other tiles write, and what stood here a while ago will do, of each word: the L1 cache may
  /// answer, so lines that every tile wants do not queue up at one place of the L2 cache. A plain
  /// load, which no compiler sees: on an H200, placing 2^27 rows of 2^16 keys took 3.5 ms with
  /// relaxed loads and 1.1 with plain ones.
  stale,
  /// In the block's shared memory, where other tiles of the block write.
  block
};

/// `Unit` is the word that the slots' compare-and-swap works on; on the CPU a shared read uses the
/// same size.
template <Access access, class Unit>
DG_FN Quarter load_quarter(const void* from) {
  Quarter quarter;
#if DG_GPU
  const auto address =
      access == Access::block ? __cvta_generic_to_shared(from) : __cvta_generic_to_global(from);
  if constexpr (access == Access::block)
    asm volatile("ld.relaxed.cta.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]),
                   "=r"(quarter.word[3])
                 : "r"(static_cast<u32>(address))
                 : "memory");
#if DG_KEY_SWAP
  else if constexpr (sizeof(Unit) == kQuarterBytes &&
                     (access == Access::shared || access == Access::lasting))
    // As one scalar, which is not seen torn beside the swaps of others; four words might be.
    asm volatile(
        "{\n .reg .b128 all;\n .reg .b64 low, high;\n ld.relaxed.gpu.global.b128 all, [%4];\n"
        " mov.b128 {low, high}, all;\n mov.b64 {%0, %1}, low;\n mov.b64 {%2, %3}, high;\n}"
        : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]), "=r"(quarter.word[3])
        : "l"(address)
        : "memory");
#endif
  else if constexpr (access == Access::frozen)
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]),
                   "=r"(quarter.word[3])
                 : "l"(address));
  else if constexpr (access == Access::staying)
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]),
                   "=r"(quarter.word[3])
                 : "l"(address));
  else if constexpr (access == Access::leaving) {
#if __CUDA_ARCH__ >= 800
    u64 first;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
    asm volatile("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]),
                   "=r"(quarter.word[3])
                 : "l"(address), "l"(first));
#else
    quarter = load_quarter<Access::frozen, Unit>(from);
#endif
  } else if constexpr (access == Access::lasting) {
#if __CUDA_ARCH__ >= 800
    u64 last;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 0.7;" : "=l"(last));
    asm volatile("ld.relaxed.gpu.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]),
                   "=r"(quarter.word[3])
                 : "l"(address), "l"(last)
                 : "memory");
#else
    quarter = load_quarter<Access::shared, Unit>(from);
#endif
  } else if constexpr (access == Access::stale)
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]),
                   "=r"(quarter.word[3])
                 : "l"(address)
                 : "memory");
  else
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quarter.word[0]), "=r"(quarter.word[1]), "=r"(quarter.word[2]),
                   "=r"(quarter.word[3])
                 : "l"(address)
                 : "memory");
#else
  if constexpr (access == Access::frozen || access == Access::staying ||
                access == Access::leaving) {
    std::memcpy(&quarter, from, sizeof quarter);
  } else {
    // By way of a vector: words stored one by one cannot be loaded as a whole at once.
    if constexpr (sizeof(Unit) == kQuarterBytes) {
      const u128 whole = load_settled(static_cast<const u128*>(from));
      const TwoWords units{whole.low, whole.high};
      std::memcpy(&quarter, &units, sizeof quarter);
    } else {
      Unit __attribute__((vector_size(kQuarterBytes))) units;
      for (u32 i = 0; i < kQuarterBytes / sizeof(Unit); ++i)
        units[i] = atomic_load<Order::relaxed>(static_cast<const Unit*>(from) + i);
      std::memcpy(&quarter, &units, sizeof quarter);
    }
  }
#endif
  return quarter;
}

/// A word that is read once: its line is the first to leave the L2 cache.
template <class Word>
DG_FN Word load_leaving(const Word* from) {
#if DG_GPU && __CUDA_ARCH__ >= 800
  static_assert(sizeof(Word) == 4 || sizeof(Word) == 8 || sizeof(Word) == 16);
  u64 first;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  const auto address = __cvta_generic_to_global(from);
  Word word;
  if constexpr (sizeof(Word) == 4)
    asm volatile("ld.global.nc.L2::cache_hint.u32 %0, [%1], %2;"
                 : "=r"(word)
                 : "l"(address), "l"(first));
  else if constexpr (sizeof(Word) == 16)
    asm volatile("ld.global.nc.L2::cache_hint.v2.u64 {%0, %1}, [%2], %3;"
                 : "=l"(word.low), "=l"(word.high)
                 : "l"(address), "l"(first));
  else
    asm volatile("ld.global.nc.L2::cache_hint.u64 %0, [%1], %2;"
                 : "=l"(word)
                 : "l"(address), "l"(first));
  return word;
#else
  return *from;
#endif
}

/// Four bytes that nobody reads soon, at an address that is aligned to them.
DG_FN void store_leaving(void* to, u32 word) {
#if DG_GPU
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(word)
               : "memory");
#else
  std::memcpy(to, &word, sizeof word);
#endif
}

/// To memory that nobody else works at meanwhile; the L1 cache keeps nothing of it.
DG_FN void store_quarter(void* to, const Quarter& quarter) {
#if DG_GPU
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(quarter.word[0]), "r"(quarter.word[1]), "r"(quarter.word[2]),
               "r"(quarter.word[3])
               : "memory");
#else
  std::memcpy(to, &quarter, sizeof quarter);
#endif
}

/// A word that is not read again soon: its line is the first to leave the caches.
template <class Word>
DG_FN void store_leaving(Word* to, Word word) {
#if DG_GPU
  const auto address = __cvta_generic_to_global(to);
  if constexpr (sizeof(Word) == 1)
    asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(address), "r"(static_cast<u32>(word))
                 : "memory");
  else if constexpr (sizeof(Word) == 4)
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
  else
    asm volatile("st.global.cs.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
#else
  *to = word;
#endif
}

#if !DG_GPU

/// A key, as often as it goes into four words.
inline FourWords repeated(u32 key) { return FourWords{key, key, key, key}; }
inline FourWords repeated(u64 key) {
  const u32 low = static_cast<u32>(key), high = static_cast<u32>(key >> 32);
  return FourWords{low, high, low, high};
}
inline FourWords repeated(u128 key) {
  return reinterpret_cast<FourWords>(TwoWords{key.low, key.high});
}

/// Which slots of a bucket begin with `key`: bit i for slot i. Four words at a time.
template <u32 slot_nbytes, class Key>
u32 slots_with(const Quarter (&bucket)[kQuarters], Key key) {
  using Words = FourWords;
  constexpr u32 per_quarter = kQuarterBytes / slot_nbytes;
  const Words wanted = repeated(key);
  Words bits{};
  for (u32 part = 0; part < kQuarters; ++part) {
    Words seen;
    std::memcpy(&seen, &bucket[part], sizeof seen);
    Words same = reinterpret_cast<Words>(seen == wanted);
    if constexpr (sizeof(Key) >= 8) same &= __builtin_shufflevector(same, same, 1, 0, 3, 2);
    if constexpr (sizeof(Key) == 16) same &= __builtin_shufflevector(same, same, 2, 3, 0, 1);
    Words weight{};
    for (u32 i = 0; i < per_quarter; ++i)
      weight[i * slot_nbytes / 4] = 1u << (part * per_quarter + i);
    bits |= same & weight;
  }
  const TwoWords halves = reinterpret_cast<TwoWords>(bits);
  const u64 both = halves[0] | halves[1];
  return static_cast<u32>(both | both >> 32);
}

#endif

}  // namespace dg

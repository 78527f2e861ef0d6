/// The two targets differ by what stands here and in tile, atomic and bucket: a GPU through NVRTC,
/// a CPU through the host compiler.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define DG_GPU 1
#define DG_FN __device__ __forceinline__
// At least so many blocks on a multiprocessor, four where it has room for no more than 1,024 threads.
#define DG_KERNEL_OF(Blocks) \
  __global__ void __launch_bounds__(dg::kThreads, __CUDA_ARCH__ < 800 ? 4 : Blocks)
// With fewer promised, ptxas spills to reach a higher occupancy.
#define DG_KERNEL DG_KERNEL_OF(4)
// Blocks that share memory, as many as give 1,024 threads to a multiprocessor.
#define DG_BLOCK_KERNEL(Threads) DG_BLOCK_KERNEL_OF(Threads, 1024 / Threads)
// At least so many of them.
#define DG_BLOCK_KERNEL_OF(Threads, Blocks) __global__ void __launch_bounds__(Threads, Blocks)
#define DG_UNROLL _Pragma("unroll")
#define DG_UNROLL_BY_4 _Pragma("unroll 4")
#define DG_ROLL _Pragma("unroll 1")
#else
#include <cstring>
#define DG_GPU 0
#define DG_FN inline
#define DG_KERNEL_OF(Blocks) inline void
#define DG_KERNEL inline void
#define DG_BLOCK_KERNEL(Threads) inline void
#define DG_BLOCK_KERNEL_OF(Threads, Blocks) inline void
#define DG_UNROLL
#define DG_UNROLL_BY_4
#define DG_ROLL
#endif

// Whether there is a compare-and-swap of 128 bits.
#if DG_GPU && __CUDA_ARCH__ >= 900
#define DG_WIDE_SWAP 1
#else
#define DG_WIDE_SWAP 0
#endif

namespace dg {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(void*) == 8);

/// Of a block that shares no memory.
inline constexpr u32 kThreads = 256;

template <class Left, class Right>
inline constexpr bool same = false;
template <class Type>
inline constexpr bool same<Type, Type> = true;

/// One of two types.
template <bool first, class First, class Second>
struct Chosen {
  using Type = First;
};
template <class First, class Second>
struct Chosen<false, First, Second> {
  using Type = Second;
};

/// Shared memory that a block can have, in KiB; on the CPU as much as anywhere.
#if !DG_GPU || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
inline constexpr u32 kBlockKib = 227;
#elif __CUDA_ARCH__ < 800
inline constexpr u32 kBlockKib = 64;
#elif __CUDA_ARCH__ == 800
inline constexpr u32 kBlockKib = 163;
#else
inline constexpr u32 kBlockKib = 99;
#endif

/// The upper half of the 128-bit product: maps a uniform `left` onto [0, right).
DG_FN u64 mulhi(u64 left, u64 right) {
#if DG_GPU
  return __umul64hi(left, right);
#else
  __extension__ using Product = unsigned __int128;
  return static_cast<u64>((static_cast<Product>(left) * right) >> 64);
#endif
}

DG_FN u32 count_ones(u32 word) {
#if DG_GPU
  return static_cast<u32>(__popc(static_cast<int>(word)));
#else
  return static_cast<u32>(__builtin_popcount(word));
#endif
}

DG_FN u32 count_ones(u64 word) {
#if DG_GPU
  return static_cast<u32>(__popcll(static_cast<i64>(word)));
#else
  return static_cast<u32>(__builtin_popcountll(word));
#endif
}

/// Position of the lowest set bit; `word` is not zero.
DG_FN u32 lowest_one(u32 word) {
#if DG_GPU
  return static_cast<u32>(__ffs(static_cast<int>(word))) - 1;
#else
  return static_cast<u32>(__builtin_ctz(word));
#endif
}

DG_FN u32 lowest_one(u64 word) {
#if DG_GPU
  return static_cast<u32>(__ffsll(static_cast<i64>(word))) - 1;
#else
  return static_cast<u32>(__builtin_ctzll(word));
#endif
}

/// Position of the highest set bit; `word` is not zero.
DG_FN u32 highest_one(u32 word) {
#if DG_GPU
  return 31 - static_cast<u32>(__clz(static_cast<int>(word)));
#else
  return 31 - static_cast<u32>(__builtin_clz(word));
#endif
}

DG_FN u32 ones_below(u32 lane) { return (1u << lane) - 1; }

/// What depends on `word` is computed from here on, and not kept in registers until it is needed.
DG_FN void compute_afresh([[maybe_unused]] u32& word) {
#if DG_GPU
  asm volatile("" : "+r"(word));
#endif
}

DG_FN void prefetch(const void* address) {
#if DG_GPU
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
#else
  __builtin_prefetch(address);
  // GCC takes a function that does nothing but prefetch for pure, and leaves calls of it out.
  asm volatile("" : : "r"(address));
#endif
}

}  // namespace dg

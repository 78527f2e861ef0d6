/// Words of 16 bytes, as two of eight: compilers for GPUs have none of their own unless they are told to.
/// They are compared and swapped whole, and are keys; they have no other arithmetic.
#pragma once

#include "core/platform.cuh"

// Whether keys of 16 bytes are stored by one compare-and-swap; elsewhere table/claims.cuh publishes them.
// On the CPU it is an instruction here, never a function of a library, which might lock.
#if DG_GPU
#define DG_KEY_SWAP DG_WIDE_SWAP
#elif (defined(__x86_64__) || defined(__aarch64__)) && !defined(DG_NO_KEY_SWAP)
#define DG_KEY_SWAP 1
#else
#define DG_KEY_SWAP 0
#endif

namespace dg {

struct alignas(16) u128 {
  u64 low, high;

  u128() = default;
  DG_FN constexpr u128(u64 low_half, u64 high_half = 0) : low(low_half), high(high_half) {}

  DG_FN constexpr u128 operator~() const { return {~low, ~high}; }
  DG_FN constexpr u128 operator-(u64 term) const { return {low - term, high - (low < term)}; }
  DG_FN constexpr bool operator==(const u128& other) const {
    return ((low ^ other.low) | (high ^ other.high)) == 0;
  }
  DG_FN constexpr bool operator<(const u128& other) const {
    return high < other.high || (high == other.high && low < other.low);
  }
  DG_FN constexpr bool operator>=(const u128& other) const { return !(*this < other); }
};
static_assert(sizeof(u128) == 16);

}  // namespace dg

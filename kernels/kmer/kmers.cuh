/// The k-mer that ends at a letter and its reverse complement, by the letter alone. The first base has the
/// highest bits, so that numbers are in the order of letters.
#pragma once

#include "core/platform.cuh"
#include "kmer/bases.cuh"

namespace dg {

/// The lowest 2 `bases` bits, of 1 to 32 bases.
DG_FN u64 mask_of_bases(u32 bases) { return ~0ull >> (64 - 2 * bases); }

/// Of 1 to 32 bases.
struct Kmer64 {
  u64 forward = 0, reverse = 0;

  DG_FN void push(u32 base, u32 k) {
    forward = (forward << 2 | base) & mask_of_bases(k);
    reverse = reverse >> 2 | static_cast<u64>(3 - base) << (2 * k - 2);
  }

  DG_FN u64 canonical() const { return forward < reverse ? forward : reverse; }

  DG_FN void put(u64* low, u64*, u64 row, bool canonically) const {
    low[row] = canonically ? canonical() : forward;
  }
};

/// Of 33 to 64 bases, in two words.
struct Kmer128 {
  u64 forward_high = 0, forward_low = 0, reverse_high = 0, reverse_low = 0;

  DG_FN void push(u32 base, u32 k) {
    forward_high = (forward_high << 2 | forward_low >> 62) & mask_of_bases(k - 32);
    forward_low = forward_low << 2 | base;
    reverse_low = reverse_low >> 2 | reverse_high << 62;
    reverse_high = reverse_high >> 2 | static_cast<u64>(3 - base) << (2 * k - 66);
  }

  DG_FN bool is_forward() const {
    return forward_high < reverse_high ||
           (forward_high == reverse_high && forward_low <= reverse_low);
  }

  DG_FN void put(u64* low, u64* high, u64 row, bool canonically) const {
    const bool as_read = !canonically || is_forward();
    low[row] = as_read ? forward_low : reverse_low;
    high[row] = as_read ? forward_high : reverse_high;
  }
};

}  // namespace dg

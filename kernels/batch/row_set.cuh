/// Some rows of a batch, and the rank of each among them: a bit for each row, and for each 64 rows how
/// many of the set come before. 2^27 rows take 32 MiB, which stays in the L2 cache of large GPUs.
#pragma once

#include "core/atomic.cuh"
#include "core/platform.cuh"

namespace dg {

/// Mirrored in dgpuhash/backend/args.py.
struct RowSet {
  u64* words;  // two for each 64 rows: their bits, and the number of rows of the set before them

  DG_FN void add(u64 row) const {
    atomic_or<Order::relaxed>(words + row / 64 * 2, 1ull << row % 64);
  }
  DG_FN u32 count(u64 word) const { return count_ones(words[2 * word]); }
  DG_FN u64 rank(u64 row) const {
    const u64* const pair = words + row / 64 * 2;
    return pair[1] + count_ones(pair[0] & ((1ull << row % 64) - 1));
  }

  /// Writes the rows of one word in order; `ranks_end` is the rank of the first row behind it.
  DG_FN void write_rows(u64 word, u64 ranks_end, i64* rows) const {
    u64 bits = words[2 * word];
    u64 rank = ranks_end - count_ones(bits);
    words[2 * word + 1] = rank;
    for (; bits != 0; bits &= bits - 1)
      rows[rank++] = static_cast<i64>(64 * word + lowest_one(bits));
  }
};

}  // namespace dg

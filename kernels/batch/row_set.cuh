/// Some rows of a batch, and the rank of each among them: a bit for each row, and for each 64 rows how
/// many of the set come before. 2^27 rows take 32 MiB, which stays in the L2 cache of large GPUs.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "core/platform.cuh"

namespace dg {

/// Some rows of a batch.
struct RowSet {
  u64* words;  // two for each 64 rows: their bits, and the number of rows of the set before them

  DG_FIELDS(words)

  DG_FN void add(u64 row) const {
    atomic_or<Order::relaxed>(words + row / 64 * 2, 1ull << row % 64);
  }
  DG_FN u32 count(u64 word) const { return count_ones(words[2 * word]); }
  DG_FN u64 rank(u64 row) const {
    const u64* const pair = words + row / 64 * 2;
    return pair[1] + count_ones(pair[0] & ((1ull << row % 64) - 1));
  }

  /// Writes the rows of one word in order, and how many come before; `ranks_end` is the rank of the
  /// first row behind it.
  template <class Tile>
  DG_FN void write_rows(Tile tile, u64 word, u64 ranks_end, i64* rows) const {
    const u64 bits = words[2 * word];
    const u64 before = ranks_end - count_ones(bits);
    if (tile.lane() == 0) words[2 * word + 1] = before;
    for (u32 bit = tile.lane(); bit < 64; bit += Tile::size)
      if (bits >> bit & 1)
        rows[before + count_ones(bits & ((1ull << bit) - 1))] = static_cast<i64>(64 * word + bit);
  }
};

}  // namespace dg

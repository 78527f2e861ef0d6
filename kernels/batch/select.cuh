/// Rows chosen by what was found for them, in order.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// Writes the left rows in [first, last) that have a partner, in order and from place `to` on, and their
/// partners; or, `alone`, those that have none.
template <class Tile>
DG_FN void select_rows(Tile tile, const i64* partner, u64 first, u64 last, u64 to, bool alone,
                       i64* left, i64* partners) {
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const bool inside = row < last;
    const i64 found = inside ? partner[row] : -1;
    const bool chosen = inside && (found < 0) == alone;
    const u32 others = tile.ballot(chosen);
    const u64 place = to + count_ones(others & ones_below(tile.lane()));
    to += count_ones(others);
    if (!chosen) continue;
    left[place] = static_cast<i64>(row);
    if (!alone) partners[place] = found;
  }
}

}  // namespace dg

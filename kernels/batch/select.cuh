/// Some rows of a batch, in order.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// Calls `put(row, place)` for the rows in [first, last) that are `chosen(row)`, with places from `to` on.
template <class Tile, class Chosen, class Put>
DG_FN void select_rows(Tile tile, u64 first, u64 last, u64 to, const Chosen& chosen,
                       const Put& put) {
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const bool mine = row < last && chosen(row);
    const u32 others = tile.ballot(mine);
    if (mine) put(row, to + count_ones(others & ones_below(tile.lane())));
    to += count_ones(others);
  }
}

}  // namespace dg

/// Stable partition of a batch by destination.
///
/// The rows are cut into segments, one for each tile. Each tile counts its segment's rows by
/// destination; the exclusive sums of the counts, by destination first and segment second, are the
/// places where each segment writes; then each tile walks its segment again, in order. Stable
/// because segments, steps and lanes are in row order. A tile's counters are its own: no atomics,
/// and on the CPU (a tile of one) this is a counting sort.
#pragma once

#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

template <class Tile>
DG_FN void count_segment(Tile tile, const u32* destinations, u64 first, u64 last, u64* counts) {
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const bool inside = row < last;
    // No destination is ~0, so lanes beyond the end match each other only.
    const u32 destination = inside ? destinations[row] : ~0u;
    const u32 peers = tile.match(destination);
    if (inside && lowest_one(peers) == tile.lane()) counts[destination] += count_ones(peers);
    // Another lane may count this destination in the next step.
    tile.sync();
  }
}

/// `cursors` are this segment's places by destination; they are moved on.
template <class Tile>
DG_FN void scatter_segment(Tile tile, const u32* destinations, u64 first, u64 last, u64* cursors,
                           i64* order) {
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const bool inside = row < last;
    const u32 destination = inside ? destinations[row] : ~0u;
    const u32 peers = tile.match(destination);
    const u32 rank = count_ones(peers & ones_below(tile.lane()));
    u64 place = 0;
    if (inside) place = cursors[destination];
    // All lanes have read before one moves the cursor, and it has moved before the next step reads
    // it.
    tile.sync();
    if (inside) {
      if (rank == 0) cursors[destination] = place + count_ones(peers);
      order[place + rank] = static_cast<i64>(row);
    }
    tile.sync();
  }
}

}  // namespace dg

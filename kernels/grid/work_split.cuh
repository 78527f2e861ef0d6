/// Rows that a tile takes one by one, as its lanes have room for them.
#pragma once

#include "grid/for_each.cuh"

namespace dg {

/// The rows that one tile serves: groups of `Group` neighbours.
template <u32 Width, u32 Group = Width>
struct RowShare {
  u32 first;   // the tile's first group
  u32 stride;  // groups from one to its next
  u64 end;     // of the batch
  u32 taken = 0;
  u32 mine = 0;  // how many rows the tile took before the one that this lane serves

  /// The row before which the tile takes `before` others; not below `end` where there is none left.
  DG_FN u64 row_of(u32 before) const {
    return (static_cast<u64>(before / Group) * stride + first) * Group + before % Group;
  }

  /// Each lane serves a row of its own: `begin(row)` says whether there is anything to do, and
  /// `step(row, asked)`, which all lanes call together, whether the row needs another step. A lane
  /// that has done with its row takes the next one, so that nobody waits for the longest of many.
  template <class Tile, class Begin, class Step>
  DG_FN void serve(Tile tile, const Begin& begin, const Step& step) {
    u64 row = 0;
    bool busy = false;
    while (true) {
      const u32 idle = tile.ballot(!busy);
      if (!busy) {
        mine = taken + count_ones(idle & ones_below(tile.lane()));
        row = row_of(mine);
        busy = row < end && begin(row);
      }
      taken += count_ones(idle);
      if (!tile.any(busy || row_of(taken) < end)) return;
      busy = step(row, busy);
    }
  }
};

/// `body(tile, share, memory, tally)` serves a tile's share of the rows, with a `Memory` that its lanes
/// share. Not for CPUs, whose lanes take turns.
template <u32 Width, u32 Group, class Memory, u32 counters, class Body>
DG_FN void for_each_share_with(u64 rows, const Totals<counters>& totals, const Body& body) {
#if DG_GPU
  __shared__ Memory memory[kThreads / Width];
  const u32 tile = threadIdx.x / Width, tiles = blockDim.x / Width;
  Tally<counters> tally;
  RowShare<Width, Group> share{blockIdx.x * tiles + tile, gridDim.x * tiles, rows};
  body(Tile<Width>{}, share, memory[tile], tally);
  if constexpr (counters > 0) add_to_totals(tally, totals);
#elif defined(DG_LOCKSTEP)
  std::vector<Memory> memory(lockstep::tiles);
  lockstep::for_each_tile<Width>(lockstep::tiles, [&](auto tile, u64 index) {
    Tally<counters> tally;
    RowShare<Width, Group> share{static_cast<u32>(index), lockstep::tiles, rows};
    body(tile, share, memory[index], tally);
    add_to_totals(tally, totals);
  });
#else
  static_assert(Width == 0);
#endif
}

/// `body(tile, share, tally)` serves a tile's share of the rows.
template <u32 Width, u32 counters, class Body>
DG_FN void for_each_share(u64 rows, const Totals<counters>& totals, const Body& body) {
  struct Nothing {};
  for_each_share_with<Width, Width, Nothing>(
      rows, totals,
      [&](auto tile, auto& share, Nothing&, Tally<counters>& tally) { body(tile, share, tally); });
}

}  // namespace dg

/// Rows that a tile takes one by one, as its lanes have room for them.
#pragma once

#include "launch/for_each.cuh"

namespace dg {

/// The rows that one tile serves: groups of `Width` rows, `stride` rows apart.
template <u32 Width>
struct RowShare {
  u64 group;  // the first row of the group that the next row is of
  u64 stride;
  u64 end;       // of the batch
  u32 used = 0;  // rows of the group that were taken

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
        row = after(count_ones(idle & ones_below(tile.lane())));
        busy = row < end && begin(row);
      }
      take(count_ones(idle));
      if (!tile.any(busy || after(0) < end)) return;
      busy = step(row, busy);
    }
  }

 private:
  /// The row after `ahead` < `Width` others; not below `end` where there is none left.
  DG_FN u64 after(u32 ahead) const {
    const u32 place = used + ahead;
    return group + place + (place < Width ? 0 : stride - Width);
  }

  /// At most `Width`.
  DG_FN void take(u32 count) {
    used += count;
    if (used < Width) return;
    used -= Width;
    group += stride;
  }
};

/// `body(tile, share, tally)` serves a tile's share of the rows. Not for CPUs, whose lanes take turns.
template <int Width, u32 counters, class Body>
DG_FN void for_each_share(u64 rows, const Totals<counters>& totals, const Body& body) {
#if DG_GPU
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  const u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  Tally<counters> tally;
  body(Tile<Width>{}, RowShare<Width>{thread / Width * Width, threads, rows}, tally);
  if constexpr (counters > 0) add_to_totals(tally, totals);
#elif defined(DG_LOCKSTEP)
  lockstep::for_each_tile<Width>(lockstep::tiles, [&](auto tile, u64 index) {
    Tally<counters> tally;
    body(tile, RowShare<Width>{index * Width, lockstep::tiles * Width, rows}, tally);
    add_to_totals(tally, totals);
  });
#else
  static_assert(Width == 0);
#endif
}

}  // namespace dg

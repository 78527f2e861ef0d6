/// Rows that a tile takes one by one, as its lanes have room for them.
#pragma once

#include "core/tile.cuh"

namespace dg {

/// The rows that one tile serves: groups of `Width` rows, `stride` rows apart.
template <u32 Width>
struct RowShare {
  u64 group;  // the first row of the group that the next row is of
  u64 stride;
  u64 end;       // of the batch
  u32 used = 0;  // rows of the group that were taken

  /// The row after `ahead` < `Width` others; not below `end` where there is none left.
  DG_FN u64 row(u32 ahead) const {
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

/// `body(tile, share)` serves a tile's share of the rows as it likes. Not for CPUs, whose lanes take
/// turns.
template <int Width, class Body>
DG_FN void for_each_share(u64 rows, const Body& body) {
#if DG_GPU
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  const u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  body(Tile<Width>{}, RowShare<Width>{thread / Width * Width, threads, rows});
#elif defined(DG_LOCKSTEP)
  lockstep::for_each_tile<Width>(lockstep::tiles, [&](auto tile, u64 index) {
    body(tile, RowShare<Width>{index * Width, lockstep::tiles * Width, rows});
  });
#else
  static_assert(Width == 0);
#endif
}

}  // namespace dg

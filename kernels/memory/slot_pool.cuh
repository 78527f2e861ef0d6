/// Memory for kernels that need some while they run: one array of slots, handed out from its beginning
/// (the pool of WarpCore §IV-C). Nothing is given back; where too little is left, the rows that asked
/// are refused, and Python adds room between launches.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"

namespace dg {

struct SlotPool {
  u64* taken;  // slots handed out; past the end where somebody was refused
  u64 slots;

  static constexpr u64 none = ~0ull;

  /// The first of `wanted` neighbouring slots, or `none`. Relaxed: whoever gets slots is the only one
  /// that writes them during the launch.
  DG_FN u64 take(u64 wanted) const {
    return checked(atomic_fetch_add<Order::relaxed>(taken, wanted), wanted);
  }

  /// The same for each lane of a tile, by one addition: launches take slots millions of times, and
  /// additions to one address queue up. A lane that wants 0 slots gets any number.
  template <class Tile>
  DG_FN u64 take(Tile tile, u64 wanted) const {
    u64 end = wanted;
    DG_UNROLL
    for (u32 distance = 1; distance < Tile::size; distance *= 2) {
      const u64 below = tile.shuffle(end, (tile.lane() - distance) & (Tile::size - 1));
      if (tile.lane() >= distance) end += below;
    }
    u64 first = 0;
    if (tile.lane() == Tile::size - 1) first = atomic_fetch_add<Order::relaxed>(taken, end);
    return checked(tile.shuffle(first, Tile::size - 1) + end - wanted, wanted);
  }

  DG_FIELDS(taken, slots)

 private:
  DG_FN u64 checked(u64 first, u64 wanted) const { return first + wanted <= slots ? first : none; }
};

}  // namespace dg

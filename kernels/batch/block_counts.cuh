/// Counts of the keys that one block meets, in its shared memory, so that rows of frequent keys never
/// reach the table. Who comes first stays: where few keys have most rows, a block meets these early.
/// All other rows go to a list of pairs, with the block's counts after them: it is shorter than the
/// batch, and its keys may still repeat.
#pragma once

#include "core/atomic.cuh"
#include "core/block.cuh"
#include "core/block_atomic.cuh"
#include "core/slot.cuh"

namespace dg {

/// Shared memory for the counts of a block, in bytes; the rest is for the L1 cache.
inline constexpr u32 kCountsNbytes = (kBlockKib - 16) * 1024;

template <class Key, class Count>
struct BlockCountsOf {
  /// Shared memory of a block.
  template <class Block>
  struct Memory {
    using Slots = Slot<Key, void>;
    static constexpr u32 per_quarter = Slots::per_quarter;
    static constexpr u32 most_quarters =
        kCountsNbytes / (per_quarter * (sizeof(Key) + sizeof(Count)));
    static constexpr Key none = ~Key{0};
    /// Quarters that a key looks into: two places are too few.
    static constexpr u32 tries = per_quarter < 4 ? 2 : 1;

    alignas(kQuarterBytes) Key keys[most_quarters * per_quarter];
    Count counts[most_quarters * per_quarter + 1];  // the last is that of the key `none`
    u32 met_none;

    DG_FN void clear(Block block, u32 quarters) {
      for (u32 slot = block.thread(); slot < quarters * per_quarter; slot += Block::threads) {
        keys[slot] = none;
        counts[slot] = 0;
      }
      if (block.thread() == 0) counts[quarters * per_quarter] = met_none = 0;
    }

    /// Adds to the count of a key; false where there is no room for it.
    DG_FN bool add(u32 quarters, Key key, Count term) {
      if (key == none) {
        block_store(&met_none, 1u);
        block_add(counts + quarters * per_quarter, term);
        return true;
      }
      const u32 mixed = static_cast<u32>(key) * 0x9e3779b1u +
                        static_cast<u32>(static_cast<u64>(key) >> 32) * 0x85ebca77u;
      u32 quarter = static_cast<u32>(static_cast<u64>(mixed ^ mixed >> 15) * quarters >> 32);
      for (u32 tried = 0; tried < tries;) {
        const u32 first = quarter * per_quarter;
        const Quarter seen = load_quarter<Access::block, Key>(keys + first);
        u32 place = per_quarter, gap = per_quarter;
        DG_UNROLL
        for (u32 i = per_quarter; i-- > 0;) {
          const Key found = Slots::key(seen, i);
          if (found == key) place = i;
          if (found == none) gap = i;
        }
        if (place == per_quarter && gap < per_quarter) {
          const Key found = block_swap_if(keys + first + gap, none, key);
          // Another key took the place: the quarter is read again.
          if (found != none && found != key) continue;
          place = gap;
        }
        if (place < per_quarter) {
          block_add(counts + first + place, term);
          return true;
        }
        ++tried;
        quarter = quarter + 1 < quarters ? quarter + 1 : 0;
      }
      return false;
    }

    /// Whether a slot holds a key; the last one is `quarters * per_quarter`.
    DG_FN bool holds(u32 quarters, u32 slot, Key& key) const {
      const bool last = slot == quarters * per_quarter;
      key = last ? none : keys[slot];
      return last ? met_none != 0 : key != none;
    }
  };
};

/// Where a block's pairs go; `listed` counts them.
template <class Key, class Count>
struct PairList {
  Key* keys;
  Count* counts;
  u64* listed;

  /// Appends the lanes' pairs that are wanted, for which there is room.
  template <u32 items, class Tile>
  DG_FN void append(Tile tile, const bool (&wanted)[items], const Key (&key)[items],
                    const Count (&count)[items]) const {
    u32 lanes[items], all = 0;
    DG_UNROLL
    for (u32 i = 0; i < items; ++i) {
      lanes[i] = tile.ballot(wanted[i]);
      all += count_ones(lanes[i]);
    }
    if (all == 0) return;
    u64 place = 0;
    if (tile.lane() == 0) place = atomic_fetch_add<Order::relaxed>(listed, all);
    place = tile.shuffle(place, 0);
    DG_UNROLL
    for (u32 i = 0; i < items; ++i) {
      if (wanted[i]) {
        const u64 mine = place + count_ones(lanes[i] & ones_below(tile.lane()));
        keys[mine] = key[i];
        counts[mine] = count[i];
      }
      place += count_ones(lanes[i]);
    }
  }
};

}  // namespace dg

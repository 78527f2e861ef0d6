/// Tables of several values a key, in slabs (SlabHash §III-B, duplicates allowed).
#pragma once

#include "table/slab/chains.cuh"

namespace dg {

/// A table of several values a key, where the last slab of a chain has its EMPTY slots anywhere. Word 30
/// of a bucket's first slab leads adding to the end of the chain.
template <class KeyType, class ValueType>
struct SlabLists : SlabChains<KeyType, ValueType, true> {
  using Chains = SlabChains<KeyType, ValueType, true>;
  using Chains::per_quarter;
  using typename Chains::Key;
  using typename Chains::Slots;
  using typename Chains::Value;

  /// Adds a value; in no order.
  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change) const {
    char* const first = this->chain_of(key);
    const u32 hint = tile.shuffle(atomic_load<Order::relaxed>(Chains::auxiliary_of(first)), 0);
    char* slab = hint == kNoSlab ? first : this->pool().slab(hint);
    // Tiles that bring the same key choose different slots.
    const u32 start = static_cast<u32>(mix(static_cast<u64>(value))) % Tile::size;
    while (true) {
      bool placed = false, taken = false;
      const u32 next =
          this->template read<Access::shared>(tile, slab, [&](u32 part, const Quarter& seen) {
            const u32 gap = Chains::scan(seen, key).gap;
            const u32 gaps = tile.ballot(gap < per_quarter && tile.lane() < kSlabQuarters);
            if (gaps == 0) return false;
            const u32 behind = gaps & ~ones_below(start);
            const u32 source = lowest_one(behind ? behind : gaps);
            if (tile.lane() == source)
              placed = Chains::claim(slab, part * per_quarter + gap, key, value, false) ==
                       Outcome::created;
            placed = tile.any(placed);
            taken = !placed;
            return true;
          });
      if (placed) return Outcome::created;
      if (taken) continue;
      if (next != kNoSlab) {
        slab = this->pool().slab(next);
        continue;
      }
      slab = this->extend(tile, static_cast<u64>(key) + start, slab, first);
      if (slab == nullptr) return Outcome::refused;
    }
  }

  /// How many values a key has.
  template <class Tile>
  DG_FN u64 count(Tile tile, Key key) const {
    u64 values = 0;
    for_each_hit<Access::frozen>(tile, key,
                                 [&](char*, u32, const Quarter&, const u32(&hits)[per_quarter]) {
                                   DG_UNROLL
                                   for (u32 i = 0; i < per_quarter; ++i)
                                     values += count_ones(hits[i]);
                                 });
    return values;
  }

  /// Writes the values of a key, as many as `count` tells.
  template <class Tile>
  DG_FN void gather(Tile tile, Key key, Value* to) const {
    for_each_hit<Access::frozen>(
        tile, key, [&](char*, u32, const Quarter& seen, const u32(&hits)[per_quarter]) {
          DG_UNROLL
          for (u32 i = 0; i < per_quarter; ++i) {
            if (hits[i] >> tile.lane() & 1u)
              to[count_ones(hits[i] & ones_below(tile.lane()))] = Slots::value(seen, i);
            to += count_ones(hits[i]);
          }
        });
  }

  /// Removes a key with all its values.
  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    u32 erased = 0;
    for_each_hit<Access::shared>(
        tile, key, [&](char* slab, u32 part, const Quarter& seen, const u32(&hits)[per_quarter]) {
          DG_UNROLL
          for (u32 i = 0; i < per_quarter; ++i) {
            const bool mine =
                (hits[i] >> tile.lane() & 1u) &&
                Chains::withdraw(slab, part * per_quarter + i, key, Slots::value(seen, i));
            erased += count_ones(tile.ballot(mine));
          }
        });
    return {erased, erased};
  }

  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    u64 slabs = 0;
    for_each_hit<Access::frozen>(
        tile, key, [&](char*, u32, const Quarter&, const u32(&)[per_quarter]) { ++slabs; });
    return Tile::size < kSlabQuarters ? slabs * Tile::size / kSlabQuarters : slabs;
  }

 private:
  /// `visit(slab, part, quarter, hits)` by all lanes for each quarter that they hold: bit l of hits[i] tells
  /// that the slot i of lane l's has the key.
  template <Access access, class Tile, class Visit>
  DG_FN void for_each_hit(Tile tile, Key key, const Visit& visit) const {
    char* slab = this->chain_of(key);
    while (true) {
      const u32 next = this->template read<access>(tile, slab, [&](u32 part, const Quarter& seen) {
        u32 hits[per_quarter];
        DG_UNROLL
        for (u32 i = 0; i < per_quarter; ++i)
          hits[i] = tile.ballot(Slots::key(seen, i) == key && tile.lane() < kSlabQuarters);
        visit(slab, part, seen, hits);
        return false;
      });
      if (next == kNoSlab) return;
      slab = this->pool().slab(next);
    }
  }
};

}  // namespace dg

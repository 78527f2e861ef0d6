/// Operations on the keys that the lanes of a tile bring, a key each: the first slabs of several are on their
/// way at once, and so are the swaps that follow. A key that this does not settle is served by itself.
#pragma once

#include "table/slab/chains.cuh"

namespace dg {

/// `Table` is a `Slab`.
template <class Table>
struct SlabsAtOnce {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Slots = typename Table::Slots;
  using Unit = typename Table::Unit;
  static constexpr u32 per_quarter = Table::per_quarter;

  const Table& table;

  /// Searches for `at_once` keys together.
  template <u32 at_once, class Tile>
  DG_FN Found<Value> find(Tile tile, bool asked, Key mine) const {
    Found<Value> answer{false, Value{}};
    const u32 bucket = asked ? table.bucket_of(mine) : 0;
    u32 left = 0;
    for (u32 first = 0; first < Tile::size; first += at_once) {
      Quarter seen[at_once];
      read<Access::frozen>(tile, bucket, first, seen);
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        const u32 source = first + i;
        hide_words(tile, seen[i]);
        const auto sight = Table::scan(seen[i], tile.shuffle(mine, source));
        const u32 hits = tile.ballot(sight.hit < per_quarter);
        const Value value = Table::shared_value(tile, Table::value_at(seen[i], sight.hit),
                                                hits ? lowest_one(hits) : 0);
        if (tile.lane() == source) answer = {hits != 0, value};
        if (hits == 0 && !tile.any(sight.gap < per_quarter)) left |= 1u << source;
      }
    }
    for (left &= tile.ballot(asked); left != 0; left &= left - 1) {
      const Found<Value> got = table.find(tile, tile.shuffle(mine, lowest_one(left)));
      if (tile.lane() == lowest_one(left)) answer = got;
    }
    return answer;
  }

  template <u32 at_once, class Tile>
  DG_FN Outcome insert(Tile tile, bool asked, Key mine, Value value, Change how) const {
    const bool watched = how.action != OnExisting::keep;
    Outcome outcome = Outcome::refused;
    const u32 bucket = asked ? table.bucket_of(mine) : 0;
    const u32 asks = tile.ballot(asked);
    u32 left = 0;
    for (u32 first = 0; first < Tile::size; first += at_once) {
      Quarter seen[at_once];
      read<Access::shared>(tile, bucket, first, seen);
      Unit was[at_once];  // EMPTY where this lane did what the key asked for
      u32 slot[at_once], found = 0;
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        const Key key = tile.shuffle(mine, first + i);
        const Value term = Table::shared_value(tile, value, first + i);
        const Place place = look(tile, key, seen[i]);
        char* const slab = table.first_slab(tile.shuffle(bucket, first + i));
        found |= static_cast<u32>(place.found) << i;
        slot[i] = place.slot;
        was[i] = static_cast<Unit>(~Table::empty);
        if (!place.mine || !(asks >> (first + i) & 1u)) continue;
        if (!place.found)
          was[i] = atomic_swap_if<Order::relaxed>(Table::slot_of(slab, place.slot), Table::empty,
                                                  Table::unit_of(key, term));
        else if (Table::template change<false>(slab, place.slot, key, held(seen[i], place), term,
                                               how) == Outcome::existed)
          was[i] = Table::empty;
      }
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        const bool here = was[i] == Table::empty;
        Outcome got = found >> i & 1u ? Outcome::existed : Outcome::created;
        if constexpr (Table::has_ready_bits) {
          const Value term = tile.shuffle(value, first + i);
          char* const slab = table.first_slab(tile.shuffle(bucket, first + i));
          if (here && got == Outcome::created) Table::publish(slab, slot[i], term, watched);
        }
        if (!tile.any(here)) left |= 1u << (first + i);
        if (tile.lane() == first + i) outcome = got;
      }
    }
    for (left &= asks; left != 0; left &= left - 1) {
      const u32 source = lowest_one(left);
      const Outcome got = table.insert(tile, tile.shuffle(mine, source),
                                       Table::shared_value(tile, value, source), how);
      if (tile.lane() == source) outcome = got;
    }
    return outcome;
  }

  template <u32 at_once, class Tile>
  DG_FN Executed<Value> execute(Tile tile, bool asked, Op op, Key mine, Value value) const {
    Executed<Value> answer{false, false, Value{}};
    const u32 bucket = asked ? table.bucket_of(mine) : 0;
    const u32 asks = tile.ballot(asked);
    u32 left = 0;
    for (u32 first = 0; first < Tile::size; first += at_once) {
      Quarter seen[at_once];
      read<Access::shared>(tile, bucket, first, seen);
      Unit was[at_once], wanted[at_once];  // the same where this lane did what the key asked for
      u32 slot[at_once], found = 0;
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        const u32 source = first + i;
        const Key key = tile.shuffle(mine, source);
        const Value term = Table::shared_value(tile, value, source);
        const Op what = static_cast<Op>(tile.shuffle(static_cast<u32>(op), source));
        const bool stores = what == Op::insert || what == Op::upsert;
        const Place place = look(tile, key, seen[i]);
        char* const slab = table.first_slab(tile.shuffle(bucket, source));
        found |= static_cast<u32>(place.found) << i;
        slot[i] = place.slot;
        was[i] = 0;
        wanted[i] = 1;
        const Value has = held(seen[i], place);
        const Value value_found = Table::shared_value(tile, has, place.lane);
        if (tile.lane() == source) answer.value = value_found;
        if (!place.mine || !(asks >> source & 1u)) continue;
        // Pairs whose value may still be on its way take longer.
        if (Table::has_ready_bits && place.found) continue;
        wanted[i] = place.found ? Table::unit_of(key, has) : Table::empty;
        was[i] = wanted[i];
        const bool overwrites = what == Op::upsert && Table::has_value;
        const bool removes = what == Op::erase || what == Op::erase_all;
        if (place.found ? overwrites || removes : stores)
          was[i] = atomic_swap_if<Order::relaxed>(
              Table::slot_of(slab, place.slot), wanted[i],
              removes ? Table::unit_of(Mark<Key>::erased, has) : Table::unit_of(key, term));
      }
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        const u32 source = first + i;
        const bool here = was[i] == wanted[i], there = found >> i & 1u;
        const Op what = static_cast<Op>(tile.shuffle(static_cast<u32>(op), source));
        const bool stores = what == Op::insert || what == Op::upsert;
        if constexpr (Table::has_ready_bits) {
          const Value term = tile.shuffle(value, source);
          char* const slab = table.first_slab(tile.shuffle(bucket, source));
          if (here && stores) Table::publish(slab, slot[i], term, true);
        }
        if (tile.lane() == source) answer.flag = stores != there;
        if (!tile.any(here)) left |= 1u << source;
      }
    }
    for (left &= asks; left != 0; left &= left - 1) {
      const u32 source = lowest_one(left);
      const Executed<Value> got =
          table.execute(tile, static_cast<Op>(tile.shuffle(static_cast<u32>(op), source)),
                        tile.shuffle(mine, source), Table::shared_value(tile, value, source));
      if (tile.lane() == source) answer = got;
    }
    return answer;
  }

 private:
  /// What a first slab shows: the key, or the first EMPTY slot.
  struct Place {
    bool found;
    bool mine;  // this lane knows the slot
    u32 lane;   // which lane does
    u32 slot;
    u32 index;  // of the slot in its quarter
  };

  template <Access access, u32 at_once, class Tile>
  DG_FN void read(Tile tile, u32 bucket, u32 first, Quarter (&seen)[at_once]) const {
    static_assert(Tile::size >= kSlabQuarters && Tile::size % at_once == 0);
    const u32 part = tile.lane() % kSlabQuarters;
    DG_UNROLL
    for (u32 i = 0; i < at_once; ++i)
      seen[i] = load_quarter<access, Unit>(table.first_slab(tile.shuffle(bucket, first + i)) +
                                           part * kQuarterBytes);
  }

  template <class Tile>
  DG_FN static void hide_words(Tile tile, Quarter& seen) {
    if (tile.lane() % kSlabQuarters == kLastPart) Table::hide_words(seen);
  }

  template <class Tile>
  DG_FN static Place look(Tile tile, Key key, Quarter& seen) {
    hide_words(tile, seen);
    const auto sight = Table::scan(seen, key);
    const u32 hits = tile.ballot(sight.hit < per_quarter);
    const u32 lanes = hits ? hits : tile.ballot(sight.gap < per_quarter);
    const u32 index = hits ? sight.hit : sight.gap;
    const u32 lane = lanes ? lowest_one(lanes) : 0;
    return {hits != 0, lanes != 0 && tile.lane() == lane, lane,
            tile.lane() % kSlabQuarters * per_quarter + index, index};
  }

  DG_FN static Value held(const Quarter& seen, const Place& place) {
    return Table::value_at(seen, place.index);
  }
};

}  // namespace dg

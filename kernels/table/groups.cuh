/// The compacting hash table (Alcantara 2011, §6.3): distinct keys, numbered densely. First the value of
/// a key is the first row that holds it, so that numbers do not depend on which tile came first; then
/// its number.
#pragma once

#include "table/open.cuh"

namespace dg {

template <class KeyType>
struct GroupTable {
  using Key = KeyType;
  using Table = OpenTable<Key, u64>;
  using Placed = typename Table::Placed;

  OpenStorage at;

  /// Makes sure that `key` is there with a value of at most `row`; beyond `limit` slots in use no new
  /// key is placed. With `repeats` an old view of the table is asked first: of few keys that come
  /// again and again, the L1 cache then answers for nearly every row.
  template <class Tile>
  DG_FN Placed place(Tile tile, Key key, u64 row, u64 limit, bool repeats) const {
    const Table table{at};
    Placed placed{Outcome::refused, 0, 0};
    if (repeats) placed = look(tile, key);
    // All ones, since other tiles may lower the value before a creating tile would have stored it.
    if (placed.outcome == Outcome::refused) placed = table.insert(tile, key, ~0ull, limit);
    if (placed.outcome != Outcome::refused && tile.lane() == placed.lane)
      lower(table.value_at(placed.slot), row);
    return placed;
  }

 private:
  /// Where the key stood a while ago; refused: it was not there yet.
  template <class Tile>
  DG_FN Placed look(Tile tile, Key key) const {
    const Table table{at};
    if (Table::reserved(key)) {
      const u32 index = Table::side_index(key);
      const bool there = atomic_load_stale(&at.state->side_present[index]) != 0;
      return Placed{tile.any(there) ? Outcome::existed : Outcome::refused, 0, Table::side(index)};
    }
    const auto stop = table.template find<Access::stale>(tile, key);
    const bool there = stop.end == Table::End::key;
    return Placed{there ? Outcome::existed : Outcome::refused, stop.lane, stop.slot};
  }

  /// Values only fall, so an old view that is low enough is as good as a new one.
  DG_FN static void lower(u64* value, u64 row) {
    if (atomic_load_stale(value) > row && atomic_load<Order::relaxed>(value) > row)
      atomic_min<Order::relaxed>(value, row);
  }
};

}  // namespace dg

/// Tables inside kernels of users (WarpCore §IV-A2): `HashMap.device_view` gives the argument and names the
/// type. All lanes of a tile call each member with the same key and get the same answer.
///
///   const auto tile = dg::Tile<8>{};
///   const auto got = view.find(tile, key);
///   if (got.found && tile.lane() == 0) out[row] = got.value;
///
/// Keys and values are words of 4 or 8 bytes; `as` gives their bits another type. While a kernel inserts or
/// appends, only the tables of method slab can be read.
#pragma once

#include "launch/verbs.cuh"

namespace dg::device {

/// A number of the lowest bits of a word.
template <class Number, class Word>
DG_FN Number as(Word word) {
  if constexpr (sizeof(Number) == 8)
    return as_real<Number>(static_cast<u64>(word));
  else if constexpr (sizeof(Number) == 4)
    return as_real<Number>(static_cast<u32>(word));
  else
    return static_cast<Number>(word);
}

/// The number of values of a key. A function of its own, as NVRTC 13.0 finds no member of what `this` returns in
/// a requirement.
template <class Table, class Tile, class Key>
DG_FN u64 values_of(const Table& table, Tile tile, Key key) {
  if constexpr (requires { table.count(tile, key); })
    return table.count(tile, key);
  else
    return table.find(tile, key).found;
}

/// The same of a key that stands beside the table.
template <class Table, class Key>
DG_FN u64 side_values_of(const Table& table, Key key) {
  if constexpr (requires { table.template place_of<Access::frozen>(key); })
    return table.template place_of<Access::frozen>(key).handle.count();
  else
    return atomic_load<Order::relaxed>(
        &table.at.state->side_present[key == Mark<Key>::empty ? 0 : 1]);
}

/// Room for the values that kernels append to the two reserved keys, which Python then keeps: those of the one
/// from the front on, those of the other from the end. `TableState::side_value[0]` has its address.
struct SideRoom {
  u64 places;  // behind this
  u64 taken;   // of them, by the one key in the lower half, by the other in the upper half

  /// By one lane: whether there was room.
  template <class Value>
  DG_FN bool append(u32 index, Value value) {
    const u64 one = index == 0 ? 1 : 1ull << 32;
    const u64 before = atomic_fetch_add<Order::relaxed>(&taken, one);
    const u64 front = before & 0xffffffff, back = before >> 32;
    if (front + back < places) {
      reinterpret_cast<Value*>(this + 1)[index == 0 ? front : places - 1 - back] = value;
      return true;
    }
    // No row finds room once one has found none, so the places below are whole.
    atomic_add<Order::relaxed>(&taken, 0 - one);
    return false;
  }
};

/// By value, as Python packs the table's `Storage`.
template <class Table>
struct View {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  static constexpr bool takes_reserved = requires { Table::takes_reserved; };

  typename Table::Storage at;

  /// Of sets and maps.
  template <class Tile>
  DG_FN Found<Value> find(Tile tile, Key key) const {
    if constexpr (!takes_reserved) {
      if (is_reserved(key)) {
        const auto side = verb::side_slots(table());
        return {side.holds(key), side.value_of(key)};
      }
    }
    return table().find(tile, key);
  }

  /// Stores the pair unless the key is there: `Outcome::created`, `existed`, or `refused` where there is no
  /// place for it. Refused pairs are counted, and leaving the view in Python tells how many they were.
  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value = {}) const {
    constexpr Change keep{OnExisting::keep, ValueKind::unsigned_integer};
    if constexpr (!takes_reserved) {
      if (is_reserved(key)) {
        u32 outcome = 0;
        if (tile.lane() == 0)
          outcome = static_cast<u32>(verb::side_slots(table()).insert(key, value, keep));
        return told(tile, static_cast<Outcome>(tile.shuffle(outcome, 0)));
      }
    }
    return told(tile, table().insert(tile, key, value, keep));
  }

  /// Of multimaps: adds a value to a key.
  template <class Tile>
  DG_FN Outcome append(Tile tile, Key key, Value value) const {
    if (is_reserved(key)) return append_aside(tile, key, value);
    return told(tile,
                table().insert(tile, key, value, {OnExisting::keep, ValueKind::unsigned_integer}));
  }

  /// The number of values of a key.
  template <class Tile>
  DG_FN u64 count(Tile tile, Key key) const {
    if constexpr (!takes_reserved) {
      if (is_reserved(key)) return side_values_of(table(), key);
    }
    return values_of(table(), tile, key);
  }

  DG_FN Table table() const { return Table{at}; }

 private:
  /// The table counts no such value among its own.
  template <class Tile>
  DG_FN Outcome append_aside(Tile tile, Key key, Value value) const {
    u32 stored = 0;
    if (tile.lane() == 0) {
      const u32 index = key == Mark<Key>::empty ? 0 : 1;
      stored = reinterpret_cast<SideRoom*>(at.state->side_value[0])->append(index, value);
      atomic_add<Order::relaxed>(stored ? &at.state->side_present[index] : &at.state->pending, 1);
    }
    return tile.shuffle(stored, 0) ? Outcome::created : Outcome::refused;
  }

  template <class Tile>
  DG_FN Outcome told(Tile tile, Outcome outcome) const {
    if (tile.lane() == 0 && outcome == Outcome::created)
      atomic_add<Order::relaxed>(&at.state->occupied, 1);
    if (tile.lane() == 0 && outcome == Outcome::refused)
      atomic_add<Order::relaxed>(&at.state->pending, 1);
    return outcome;
  }
};

/// Bytes as Python packs them.
template <class Storage>
struct VisitArgs {
  Storage table;
  const void* keys;  // or null: all that is stored
  u64 extra[8];      // what the function gets behind a row
  u64 n;             // keys, or places and two
};

/// Calls `each(key, value, row, extra)` for the keys of a batch that are stored.
template <class Table, class Each, int W>
DG_KERNEL visit_found(VisitArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  const View<Table> view{args.table};
  for_each_lane<W>(args.n, [&](auto tile, u64 row, bool asked) {
    const Key mine = asked ? static_cast<const Key*>(args.keys)[row] : Key{};
    Found<typename Table::Value> found{false, {}};
    serve_lanes(tile, asked, [&](u32 source) {
      const auto got = view.find(tile, tile.shuffle(mine, source));
      if (tile.lane() == source) found = got;
    });
    if (found.found) Each{}(mine, found.value, row, args.extra);
  });
}

/// The same for all that is stored, with places for rows.
template <class Table, class Each, int W>
DG_KERNEL visit_all(VisitArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  const View<Table> view{args.table};
  const u64 places = view.table().places();
  for_each_lane<W>(args.n, [&](auto, u64 place, bool asked) {
    Key key{};
    typename Table::Value value{};
    if (!asked) return;
    if (place < places) {
      if (!view.table().entry(place, key, value)) return;
    } else {
      const u32 index = place == places ? 0 : 1;
      if (args.table.state->side_present[index] == 0) return;
      key = static_cast<Key>(Mark<Key>::empty - index);
      if constexpr (Table::has_value)
        value = static_cast<typename Table::Value>(args.table.state->side_value[index]);
    }
    Each{}(key, value, place, args.extra);
  });
}

}  // namespace dg::device

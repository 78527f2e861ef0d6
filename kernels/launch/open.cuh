/// Batches of sets and maps: insert, find, erase. Structs are mirrored in dgpuhash/backend/args.py.
#pragma once

#include "launch/share.cuh"
#include "launch/turns.cuh"
#include "table/open_walks.cuh"

namespace dg {

struct OpenInsertArgs {
  OpenStorage table;
  const void* keys;
  const void* values;  // unused by sets
  u8* fresh;           // or null; 1 in the one row that created each new key, 0 elsewhere
  u64* pending_rows;   // or null; the rows that found no place, in any order
  u64 n;
  u64 limit;  // slots in use (keys and marks) beyond which no new key is placed; ~0 for no limit
  u64 overwrite;  // 1: the values of existing keys are replaced
};

struct OpenFindArgs {
  OpenStorage table;
  const void* keys;
  void* values;  // or null
  u8* found;     // or null
  u64 n;
  u64 default_value;  // bits written where the key is absent
};

struct OpenEraseArgs {
  OpenStorage table;
  const void* keys;
  u8* erased;  // or null; 1 in one row of each key that was removed
  u64 n;
};

/// The value of an input row; nothing for sets.
template <class Table>
DG_FN typename Table::Value value_in_row(const void* values, u64 row) {
  if constexpr (Table::Slots::has_value)
    return static_cast<const typename Table::Value*>(values)[row];
  else
    return {};
}

template <class Key, class Value, int W>
DG_KERNEL open_insert(OpenInsertArgs args) {
  using Table = OpenTable<Key, Value>;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Totals<1> totals{{&args.table.state->occupied}};
  const auto tell = [&](auto tile, u64 row, const typename Table::Placed& placed,
                        Tally<1>& created) {
    if (placed.outcome == Outcome::existed && args.overwrite && tile.lane() == placed.lane)
      table.replace(placed.slot, keys[row], value_in_row<Table>(args.values, row));
    if (tile.lane() != 0) return;
    if (args.fresh) args.fresh[row] = placed.outcome == Outcome::created;
    if (placed.outcome == Outcome::created && args.limit == Table::unlimited) ++created.of[0];
    if (placed.outcome == Outcome::refused) {
      const u64 place = atomic_add<Order::relaxed>(&args.table.state->pending, 1);
      if (args.pending_rows) args.pending_rows[place] = row;
    }
  };
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, Value> walks{table};
    for_each_in_turns(
        args.n, totals, [&](u64 row) { return walks.begin(keys[row]); },
        [&](u64 row, auto& walk, Tally<1>& created) {
          const auto placed =
              walks.insert(keys[row], value_in_row<Table>(args.values, row), args.limit, walk);
          if (placed.outcome == Outcome::later) return true;
          tell(Tile<1>{}, row, placed, created);
          return false;
        });
  } else {
    for_each_tile<W>(
        args.n, totals,
        [&](auto tile, u64 row, Tally<1>& created) {
          const auto placed =
              table.insert(tile, keys[row], value_in_row<Table>(args.values, row), args.limit);
          tell(tile, row, placed, created);
        },
        NoPrefetch{});
  }
}

template <class Key, class Value, int W>
DG_KERNEL open_find(OpenFindArgs args) {
  using Table = OpenTable<Key, Value>;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const auto answer = [&](u64 row, const typename Table::Stop& stop) {
    const bool found = stop.end == Table::End::key;
    if constexpr (Table::Slots::has_value) {
      if (args.values)
        static_cast<typename Table::Value*>(args.values)[row] =
            found ? table.value_of(stop) : static_cast<typename Table::Value>(args.default_value);
    }
    if (args.found) args.found[row] = found;
  };
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, Value> walks{table};
    for_each_in_turns(
        args.n, Totals<0>{}, [&](u64 row) { return walks.begin(keys[row]); },
        [&](u64 row, auto& walk, Tally<0>&) {
          const auto stop = walks.find(keys[row], walk);
          if (stop.end == Table::End::later) return true;
          answer(row, stop);
          return false;
        });
  } else {
    for_each_share<W>(args.n,
                      [&](auto tile, auto rows) { table.find_rows(tile, rows, keys, answer); });
  }
}

template <class Key, class Value, int W>
DG_KERNEL open_erase(OpenEraseArgs args) {
  const OpenTable<Key, Value> table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<W>(
      args.n, Totals<2>{{&args.table.state->occupied, &args.table.state->erased}},
      [&](auto tile, u64 row, Tally<2>& changed) {
        bool leaves_mark;
        const bool erased = table.erase(tile, keys[row], leaves_mark);
        if (tile.lane() != 0) return;
        changed.of[0] -= erased;
        changed.of[1] += leaves_mark;
        if (args.erased) args.erased[row] = erased;
      },
      [&](u64 row) { table.prefetch_first(keys[row]); });
}

}  // namespace dg

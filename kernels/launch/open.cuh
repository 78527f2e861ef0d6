/// Batches of sets and maps: insert, find, erase.
#pragma once

#include "core/fields.cuh"
#include "grid/interleaved.cuh"
#include "grid/result_staging.cuh"
#include "table/open_rows.cuh"
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

  DG_FIELDS(table, keys, values, fresh, pending_rows, n, limit, overwrite)
};

struct OpenFindArgs {
  OpenStorage table;
  const void* keys;
  void* values;  // or null
  u8* found;
  u64 n;
  u64 default_value;  // bits written where the key is absent

  DG_FIELDS(table, keys, values, found, n, default_value)
};

struct OpenEraseArgs {
  OpenStorage table;
  const void* keys;
  u8* erased;  // or null; 1 in one row of each key that was removed
  u64 n;

  DG_FIELDS(table, keys, erased, n)
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
  using Table = OpenRows<Key, Value>;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Totals<1> totals{{&args.table.state->occupied}};
  const auto tell = [&](u64 row, const typename Table::Placed& placed, Tally<1>& created) {
    if (placed.outcome == Outcome::existed && args.overwrite)
      table.replace(placed.slot, keys[row], value_in_row<Table>(args.values, row));
    if (args.fresh) args.fresh[row] = placed.outcome == Outcome::created;
    if (placed.outcome == Outcome::created && args.limit == Table::unlimited) ++created.of[0];
    if (placed.outcome == Outcome::refused) {
      const u64 place = atomic_fetch_add<Order::relaxed>(&args.table.state->pending, 1);
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
          tell(row, placed, created);
          return false;
        });
  } else {
    for_each_share<W>(args.n, totals, [&](auto tile, auto& rows, Tally<1>& created) {
      const auto told = [&](u64 row, const auto& placed) { tell(row, placed, created); };
      if (table.presses()) {
        table.template insert_rows<Access::lasting>(
            tile, rows, args.limit,
            [&](u64 row, Key& key, typename Table::Value& value) {
              key = load_leaving(keys + row);
              if constexpr (Table::Slots::has_value)
                value = load_leaving(static_cast<const typename Table::Value*>(args.values) + row);
              return true;
            },
            told);
      } else {
        table.template insert_rows<Access::shared>(
            tile, rows, args.limit,
            [&](u64 row, Key& key, typename Table::Value& value) {
              key = keys[row];
              value = value_in_row<Table>(args.values, row);
              return true;
            },
            told);
      }
    });
  }
}

template <class Key, class ValueType, int W>
DG_KERNEL_OF(5)
open_find(OpenFindArgs args) {
  using Table = OpenRows<Key, ValueType>;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  using Value = typename Table::Value;
  const Answers<Value> answers{static_cast<Value*>(args.values), args.found};
  const auto value_of = [&](const typename Table::Stop& stop) {
    if constexpr (Table::Slots::has_value) {
      if (answers.values)
        return stop.end == Table::End::key ? table.value_of(stop)
                                           : static_cast<Value>(args.default_value);
    }
    return Value{};
  };
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, ValueType> walks{table};
    for_each_in_turns(
        args.n, Totals<0>{}, [&](u64 row) { return walks.begin(keys[row]); },
        [&](u64 row, auto& walk, Tally<0>&) {
          const auto stop = walks.find(keys[row], walk);
          if (stop.end == Table::End::later) return true;
          answers.store(row, stop.end == Table::End::key, value_of(stop));
          return false;
        });
  } else {
    for_each_answered<W>(args.n, Totals<0>{}, answers, [&](auto tile, auto& rows, Tally<0>&) {
      table.template find_rows<Table::Goal::key>(
          tile, rows,
          [&](u64 row, Key& key) {
            key = keys[row];
            return true;
          },
          [&](u64 row, const auto& stop) {
            rows.answer(row, stop.end == Table::End::key, value_of(stop));
          });
    });
  }
}

template <class Key, class Value, int W>
DG_KERNEL open_erase(OpenEraseArgs args) {
  using Table = OpenRows<Key, Value>;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Totals<2> totals{{&args.table.state->occupied, &args.table.state->erased}};
  const auto tell = [&](u64 row, const typename Table::Removed& removed, Tally<2>& changed) {
    changed.of[0] -= removed.erased;
    changed.of[1] += removed.left_mark;
    if (args.erased) args.erased[row] = removed.erased;
  };
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, Value> walks{table};
    for_each_in_turns(
        args.n, totals, [&](u64 row) { return walks.begin(keys[row]); },
        [&](u64 row, auto& walk, Tally<2>& changed) {
          const auto removed = walks.erase(keys[row], walk);
          if (!removed.later) tell(row, removed, changed);
          return removed.later;
        });
  } else {
    for_each_share<W>(args.n, totals, [&](auto tile, auto& rows, Tally<2>& changed) {
      table.erase_rows(tile, rows, keys,
                       [&](u64 row, const auto& removed) { tell(row, removed, changed); });
    });
  }
}

}  // namespace dg

/// Batches of sets and maps: insert, find, erase.
#pragma once

#include "core/fields.cuh"
#include "core/tree.cuh"
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

struct OpenCombineArgs {
  OpenStorage table;  // `state->pending` gets the rows that found no place
  const void* keys;
  const void* values;  // or null: every row brings `term`
  u8* flags;           // 1 in the one row that created each new key, 0 elsewhere; see the kernels
  u64 n;
  u64 term;
  u64 action;  // an OnExisting
  u64 kind;    // a ValueKind, and the bits that values leave: `change_of`
  u64 flag;    // of the rows that open_change takes

  DG_FIELDS(table, keys, values, flags, n, term, action, kind, flag)
};

struct OpenLcaArgs {
  OpenStorage table;  // `state->pending` gets the rows that found no place
  Tree tree;
  const void* keys;
  const void* values;  // nodes of the tree, as words
  u8* flags;  // or null; 1 in the one row that created each new key, 3 where there was no place
  u64 n;

  DG_FIELDS(table, tree, keys, values, flags, n)
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

/// Inserts all rows: `value_of(row, key, load)` gives a row's value, which `load(from)` reads, and
/// `tell(row, placed, created)` is told what became of it.
template <class Key, class Value, int W, bool together = false, class ValueOf, class Tell>
DG_FN void insert_batch(const OpenRows<Key, Value>& table, const void* given, u64 n, u64 limit,
                        const ValueOf& value_of, const Tell& tell) {
  using Stored = typename OpenRows<Key, Value>::Value;
  const Key* keys = static_cast<const Key*>(given);
  const Totals<1> totals{{&table.at.state->occupied}};
  const auto load = [](const auto* from) { return *from; };
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, Value> walks{table};
    for_each_in_turns(
        n, totals, [&](u64 row) { return walks.begin(keys[row]); },
        [&](u64 row, auto& walk, Tally<1>& created) {
          const auto placed = walks.insert(keys[row], value_of(row, keys[row], load), limit, walk);
          if (placed.outcome == Outcome::later) return true;
          tell(row, placed, created);
          return false;
        });
  } else {
    for_each_share<W>(n, totals, [&](auto tile, auto& rows, Tally<1>& created) {
      const auto told = [&](u64 row, const auto& placed) { tell(row, placed, created); };
      if (table.presses()) {
        const auto load_once = [](const auto* from) { return load_leaving(from); };
        table.template insert_rows<Access::lasting, together>(
            tile, rows, limit,
            [&](u64 row, Key& key, Stored& value) {
              key = load_leaving(keys + row);
              value = value_of(row, key, load_once);
              return true;
            },
            told);
      } else {
        table.template insert_rows<Access::shared, together>(
            tile, rows, limit,
            [&](u64 row, Key& key, Stored& value) {
              key = keys[row];
              value = value_of(row, key, load);
              return true;
            },
            told);
      }
    });
  }
}

template <class Key, class Value, int W>
DG_KERNEL open_insert(OpenInsertArgs args) {
  using Table = OpenRows<Key, Value>;
  const Table table{args.table};
  insert_batch<Key, Value, W>(
      table, args.keys, args.n, args.limit,
      [&](u64 row, Key, const auto& load) -> typename Table::Value {
        if constexpr (Table::Slots::has_value)
          return load(static_cast<const typename Table::Value*>(args.values) + row);
        else
          return {};
      },
      [&](u64 row, const typename Table::Placed& placed, Tally<1>& created) {
        if (placed.outcome == Outcome::existed && args.overwrite)
          table.replace(placed.slot, static_cast<const Key*>(args.keys)[row],
                        value_in_row<Table>(args.values, row));
        if (args.fresh) args.fresh[row] = placed.outcome == Outcome::created;
        if (placed.outcome == Outcome::created && args.limit == Table::unlimited) ++created.of[0];
        if (placed.outcome == Outcome::refused) {
          const u64 place = atomic_fetch_add<Order::relaxed>(&args.table.state->pending, 1);
          if (args.pending_rows) args.pending_rows[place] = row;
        }
      });
}

template <class Table>
DG_FN typename Table::Value term_in_row(const OpenCombineArgs& args, u64 row) {
  using Value = typename Table::Value;
  return args.values ? static_cast<const Value*>(args.values)[row] : static_cast<Value>(args.term);
}

/// Stores pairs and changes the values of stored keys in one go, as far as that is safe beside the
/// stores: where pairs are published whole, and sums of integers, which nobody stores but all add to
/// the slot's -1. The rows that remain get the flag 2, and open_change after; those that found no place
/// get the flag 3.
template <class Key, class ValueType, int W>
DG_KERNEL open_combine(OpenCombineArgs args) {
  using Table = OpenRows<Key, ValueType>;
  using Value = typename Table::Value;
  const Table table{args.table};
  const Change change = change_of(args.action, args.kind);
  const bool adds = !Table::Slots::whole && change.action == OnExisting::sum &&
                    change.kind != ValueKind::floating;
  insert_batch<Key, ValueType, W, true>(
      table, args.keys, args.n, Table::unlimited,
      [&](u64 row, Key key, const auto& load) {
        if (adds && !Table::reserved(key)) return ~Value{0};
        return args.values ? load(static_cast<const Value*>(args.values) + row)
                           : static_cast<Value>(args.term);
      },
      [&](u64 row, const typename Table::Placed& placed, Tally<1>& created) {
        const bool fresh = placed.outcome == Outcome::created;
        const bool aside = placed.slot >= Table::side(1);
        u8 flag = fresh;
        if (placed.outcome == Outcome::refused) {
          atomic_add<Order::relaxed>(&args.table.state->pending, 1);
          args.flags[row] = 3;
          return;
        }
        if (adds && !aside)
          table.change(placed.slot, term_in_row<Table>(args, row) + fresh, change);
        else if (!fresh && Table::Slots::whole && !aside)
          table.change(placed.slot, term_in_row<Table>(args, row), change);
        else if (!fresh)
          flag = 2;
        args.flags[row] = flag;
        created.of[0] += fresh;
      });
}

/// Changes the values of stored keys by the rows whose flag is `args.flag`, which becomes 0.
template <class Key, class Value, int W>
DG_KERNEL open_change(OpenCombineArgs args) {
  using Table = OpenRows<Key, Value>;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Change change = change_of(args.action, args.kind);
  const auto wanted = [&](u64 row) {
    if (args.flags[row] != args.flag) return false;
    args.flags[row] = 0;
    return true;
  };
  const auto term = [&](u64 row) { return term_in_row<Table>(args, row); };
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, Value> walks{table};
    using Walk = decltype(walks.begin(Key{}));
    for_each_in_turns(
        args.n, Totals<0>{},
        [&](u64 row) { return wanted(row) ? walks.begin(keys[row]) : Walk{~0ull, 0}; },
        [&](u64 row, auto& walk, Tally<0>&) {
          if (walk.bucket == ~0ull) return false;
          const Key key = keys[row];
          if (Table::reserved(key)) {
            table.change(Table::side(Table::side_index(key)), term(row), change);
            return false;
          }
          const auto stop = walks.template find<Access::shared>(key, walk);
          if (stop.end == Table::End::key) table.change(stop.slot, term(row), change);
          return stop.end == Table::End::later;
        });
  } else {
    for_each_share<W>(args.n, Totals<0>{}, [&](auto tile, auto& rows, Tally<0>&) {
      table.change_rows(
          tile, rows, change,
          [&](u64 row, Key& key) {
            if (!wanted(row)) return false;
            key = keys[row];
            return true;
          },
          term);
    });
  }
}

/// Stores pairs and changes the values of stored keys to the lowest common ancestor of all. Nobody stores a
/// first value: all change the -1 of a new slot, which is no node.
template <class Key, class ValueType, int W>
DG_KERNEL open_lca(OpenLcaArgs args) {
  using Table = OpenRows<Key, ValueType>;
  using Value = typename Table::Value;
  const Table table{args.table};
  insert_batch<Key, ValueType, W, true>(
      table, args.keys, args.n, Table::unlimited, [](u64, Key, const auto&) { return ~Value{0}; },
      [&](u64 row, const typename Table::Placed& placed, Tally<1>& created) {
        const bool fresh = placed.outcome == Outcome::created;
        if (placed.outcome == Outcome::refused)
          atomic_add<Order::relaxed>(&args.table.state->pending, 1);
        else
          table.fold(placed.slot, static_cast<const Value*>(args.values)[row], args.tree);
        if (args.flags) args.flags[row] = placed.outcome == Outcome::refused ? 3 : fresh;
        created.of[0] += fresh;
      });
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

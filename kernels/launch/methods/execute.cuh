/// Mixed batches: finds, inserts and erasures side by side in one launch (SlabHash §VI-C).
///
/// For tables whose `mixed` is true, which have
///
///   execute(tile, op, key, value)            -> Executed<Value>
///
/// and may have `execute_own(tile, asked, op, key, value)`, which is called instead with each lane's own row.
/// Every operation takes effect at one moment between its begin and its end, whatever the others do.
#pragma once

#include "launch/verbs.cuh"

namespace dg {

/// The slots of the reserved keys, by one lane amid all kinds of operations.
template <class KeyType, class ValueType>
struct MixedSideSlots : SideSlots<KeyType, ValueType> {
  using Own = SideSlots<KeyType, ValueType>;
  using typename Own::Key;
  using typename Own::Value;

  /// What side_present holds meanwhile. A key that is being created is not there yet, and one whose value
  /// is being changed is. No other launch sees these.
  static constexpr u64 absent = 0, present = 1, creating = 2, changing = 3;

  DG_FN Executed<Value> execute(Op op, Key key, Value value) const {
    const u32 index = Own::index_of(key);
    u64* const at = &this->state->side_present[index];
    constexpr Executed<Value> no{false, false, Value{}}, yes{true, false, Value{}};
    for (u32 round = 0;; back_off(round++)) {
      const u64 seen = atomic_load<Order::acquire>(at);
      const bool there = seen == present || seen == changing;
      if (op == Op::find) {
        if (!there) return no;
        const Value found = value_between(index);
        const u64 then = atomic_load<Order::relaxed>(at);
        // Whoever removed the key in between left the value, and whoever stored it again is done.
        if (then == present || then == changing) return {true, false, found};
      } else if (op == Op::insert || op == Op::upsert) {
        if (there && op == Op::insert) return no;
        if (seen != present && seen != absent) continue;
        const u64 busy = there ? changing : creating;
        if (atomic_swap_if<Order::acquire_release>(at, seen, busy) != seen) continue;
        if constexpr (Own::has_value)
          atomic_store<Order::relaxed>(&this->state->side_value[index], static_cast<u64>(value));
        atomic_store<Order::release>(at, present);
        return there ? no : yes;
      } else {
        if (!there) return no;
        if (seen == present &&
            atomic_swap_if<Order::acquire_release>(at, present, absent) == present)
          return yes;
      }
    }
  }

 private:
  DG_FN Value value_between([[maybe_unused]] u32 index) const {
    if constexpr (Own::has_value)
      return static_cast<Value>(atomic_load<Order::acquire>(&this->state->side_value[index]));
    else
      return {};
  }
};

namespace verb {

template <class Storage>
struct ExecuteArgs {
  Storage table;
  const u8* ops;  // an Op for each row
  const void* keys;
  const void* values;  // unused by sets; or null where no row stores one
  const u64* rows;     // or null: the rows to execute, all of the batch
  void* found_values;  // or null
  u8* flags;
  u64* pending_rows;  // or null; the rows that found no place, in any order
  u64 n;
  u64 default_value;  // bits written for rows that find nothing
  u64 most;           // a launch does nothing where `op_counts` has left more in `links`

  DG_FIELDS(table, ops, keys, values, rows, found_values, flags, pending_rows, n, default_value,
            most)
};

template <class Table, class Tile, class Key, class Value>
DG_FN Executed<Value> execute_own(const Table& table, Tile tile, bool asked, Op op, Key mine,
                                  Value value) {
  if constexpr (requires { table.execute_own(tile, asked, op, mine, value); }) {
    return table.execute_own(tile, asked, op, mine, value);
  } else {
    Executed<Value> done{};
    serve_lanes(tile, asked, [&](u32 source) {
      const Op each = static_cast<Op>(tile.shuffle(static_cast<u32>(op), source));
      const Executed<Value> got =
          table.execute(tile, each, tile.shuffle(mine, source), shared_value(tile, value, source));
      if (tile.lane() == source) done = got;
    });
    return done;
  }
}

template <class Table, int W>
DG_KERNEL execute(ExecuteArgs<typename Table::Storage> args) {
  static_assert(Table::mixed);
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Stored = typename Chosen<Table::has_value, Value, void>::Type;
  // The same for all threads: nobody changes the word.
  if (atomic_load<Order::relaxed>(&args.table.state->links) > args.most) return;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n, Totals<2>{{&args.table.state->occupied, &args.table.state->erased}},
      [&](auto tile, u64 place, bool asked, Tally<2>& tally) {
        const u64 row = asked && args.rows ? args.rows[place] : place;
        const Key mine = asked ? load_leaving(keys + row) : Key{};
        const u32 op = asked ? args.ops[row] : 0;
        const auto value = asked && args.values ? value_in<Table>(args.values, row) : Value{};
        const bool beside = asked && is_reserved(mine);
        const Op kind = static_cast<Op>(op);
        Executed<Value> done = execute_own(table, tile, asked && !beside, kind, mine, value);
        if (!asked) return;
        if (beside)
          done = MixedSideSlots<Key, Stored>{{args.table.state}}.execute(kind, mine, value);
        const bool stores = kind == Op::insert || kind == Op::upsert;
        const bool removes = kind == Op::erase || kind == Op::erase_all;
        tally.of[0] += done.flag && stores;
        tally.of[0] -= done.flag && removes;
        tally.of[1] += done.flag && removes && !beside;
        store_leaving(args.flags + row, static_cast<u8>(done.flag));
        if constexpr (Table::has_value) {
          if (args.found_values)
            static_cast<Value*>(args.found_values)[row] =
                done.flag && kind == Op::find ? done.value : static_cast<Value>(args.default_value);
        }
        if (done.refused) refuse(args.table.state, args.pending_rows, row);
      },
      [&](u64 place) { table.prefetch(keys[args.rows ? args.rows[place] : place]); });
}

}  // namespace verb

/// Rows whose code is no `Op` count by 2^kStrangeShift, so that one of them is more than all rows that store.
inline constexpr u32 kStrangeShift = 40;

struct OpCountArgs {
  const u8* ops;
  u64* counted;  // rows that may store a key, and strange ones
  u64 n;

  DG_FIELDS(ops, counted, n)
};

DG_KERNEL op_counts(OpCountArgs args) {
  for_each_lane<1>(
      args.n, Totals<1>{{args.counted}},
      [&](auto, u64 row, bool asked, Tally<1>& counted) {
        if (!asked) return;
        const u8 op = args.ops[row];
        counted.of[0] += op == static_cast<u8>(Op::insert) || op == static_cast<u8>(Op::upsert);
        counted.of[0] += static_cast<i64>(op > static_cast<u8>(Op::erase_all)) << kStrangeShift;
      },
      NoPrefetch{});
}

}  // namespace dg

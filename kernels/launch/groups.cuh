/// Dense numbers for keys: place the keys, number them by their first rows, hand the numbers out.
#pragma once

#include "launch/for_each.cuh"
#include "table/groups.cuh"

namespace dg {

struct GroupPlaceArgs {
  OpenStorage table;
  const void* keys;
  u64* slots;     // where each row's key stands
  u64* refused;   // rows that found no place; when there is one, further new keys are not tried
  u64 n;          // rows of this launch
  u64 first_row;  // the first of them
  u64 limit;      // slots in use beyond which no new key is placed; ~0 for no limit
  u64 repeats;    // 1: most rows are expected to hold a key that is there
};

struct GroupNumberArgs {
  OpenStorage table;
  const u64* slots;
  const i64* first_rows;  // of each group, in the order of their numbers
  u64 n;                  // groups
};

struct GroupCodesArgs {
  OpenStorage table;
  u64* slots;  // replaced by the numbers
  u64 n;
};

template <class Key, int W>
DG_KERNEL group_place(GroupPlaceArgs args) {
  const GroupTable<Key> table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys) + args.first_row;
  u64* slots = args.slots + args.first_row;
  for_each_tile<W>(
      args.n, Totals<1>{{&args.table.state->occupied}},
      [&](auto tile, u64 index, Tally<1>& created) {
        // Only a launch with a limit refuses, and what it wrote is thrown away then.
        if (args.limit != ~0ull && tile.any(atomic_load_stale(args.refused) != 0)) return;
        const auto placed =
            table.place(tile, keys[index], args.first_row + index, args.limit, args.repeats != 0);
        if (tile.lane() == placed.lane) slots[index] = placed.slot;
        if (tile.lane() != 0) return;
        if (placed.outcome == Outcome::created && args.limit == ~0ull) ++created.of[0];
        if (placed.outcome == Outcome::refused) atomic_add<Order::relaxed>(args.refused, 1);
      },
      [&](u64 index) { OpenTable<Key, u64>{args.table}.prefetch_first(keys[index]); });
}

template <class Key>
DG_KERNEL group_number(GroupNumberArgs args) {
  const OpenTable<Key, u64> table{args.table};
  for_each_tile<1>(args.n, [&](auto, u64 group) {
    *table.value_at(args.slots[args.first_rows[group]]) = group;
  });
}

template <class Key>
DG_KERNEL group_codes(GroupCodesArgs args) {
  const OpenTable<Key, u64> table{args.table};
  for_each_tile<1>(
      args.n, [&](auto, u64 row) { args.slots[row] = *table.value_at(args.slots[row]); },
      [&](u64 row) { prefetch(table.value_at(args.slots[row])); });
}

}  // namespace dg

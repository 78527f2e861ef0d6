/// Batches of multi-value tables. Batches come grouped by key: a run is the values of one key in
/// order.
#pragma once

#include "launch/for_each.cuh"
#include "table/bucket_list.cuh"

namespace dg {

struct ListStorage {
  OpenStorage keys;  // values are handles
  Pool pool;
  Growth growth;
};

struct ListNeedArgs {
  ListStorage table;
  const void* run_keys;
  const u64* run_offsets;  // n + 1
  u64* slots;              // out: pool slots that appending each run takes
  u64* absent;             // added to: keys that are not stored yet
  u64 n;
};

struct ListAppendArgs {
  ListStorage table;
  const void* run_keys;
  const u64* run_offsets;  // n + 1, into `values`
  const void* values;
  const u64*
      places;  // or null; n + 1: pool slots kept for each run, counted in PoolState.used already
  u64* pending_runs;  // or null; the runs that found no place, in any order
  u64 n;
  u64 limit;  // as of open_insert
};

struct ListCountArgs {
  ListStorage table;
  const void* keys;
  u64* counts;  // values of each key; 0 where it is absent
  u64 n;
};

struct ListRetrieveArgs {
  ListStorage table;
  const void* keys;
  const u64* offsets;  // where each key's values go: the exclusive sums of the counts
  void* values;
  u64 n;
};

template <class Key, class Value>
DG_FN BucketList<Key, Value> bucket_list(const ListStorage& storage) {
  return {{storage.keys}, storage.pool, storage.growth};
}

template <class Key, int W>
DG_KERNEL list_need(ListNeedArgs args) {
  const auto table = bucket_list<Key, u64>(args.table);
  const Key* keys = static_cast<const Key*>(args.run_keys);
  for_each_tile<W>(
      args.n, Totals<1>{{args.absent}},
      [&](auto tile, u64 run, Tally<1>& absent) {
        const ListHandle handle = table.handle_of(tile, keys[run]);
        if (tile.lane() != 0) return;
        absent.of[0] += handle.state() == ListHandle::State::uninitialized;
        const u64 length = args.run_offsets[run + 1] - args.run_offsets[run];
        args.slots[run] = table.growth.slots_to_append(handle.count(), length);
      },
      [&](u64 run) { table.keys.prefetch_first(keys[run]); });
}

template <class Key, class Value, int W>
DG_KERNEL list_append(ListAppendArgs args) {
  const auto table = bucket_list<Key, Value>(args.table);
  const Key* keys = static_cast<const Key*>(args.run_keys);
  OpenState* state = args.table.keys.state;
  for_each_tile<W>(
      args.n, Totals<1>{{&state->occupied}},
      [&](auto tile, u64 run, Tally<1>& keys_created) {
        const u64 first = args.run_offsets[run];
        const u64 length = args.run_offsets[run + 1] - first;
        if (length == 0) return;
        const u64 place = args.places ? args.places[run] : 0;
        const u64 planned = args.places ? args.places[run + 1] - place : 0;
        bool created;
        const bool stored =
            table.append(tile, keys[run], static_cast<const Value*>(args.values) + first, length,
                         place, planned, args.limit, created);
        if (tile.lane() != 0) return;
        keys_created.of[0] += created && args.limit == BucketList<Key, Value>::Keys::unlimited;
        if (stored) return;
        const u64 at = atomic_add<Order::relaxed>(&state->pending, 1);
        if (args.pending_runs) args.pending_runs[at] = run;
      },
      [&](u64 run) { table.keys.prefetch_first(keys[run]); });
}

template <class Key, int W>
DG_KERNEL list_count(ListCountArgs args) {
  const auto table = bucket_list<Key, u64>(args.table);
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<W>(
      args.n,
      [&](auto tile, u64 row) {
        const ListHandle handle = table.handle_of(tile, keys[row]);
        if (tile.lane() == 0) args.counts[row] = handle.count();
      },
      [&](u64 row) { table.keys.prefetch_first(keys[row]); });
}

template <class Key, class Value, int W>
DG_KERNEL list_retrieve(ListRetrieveArgs args) {
  const auto table = bucket_list<Key, Value>(args.table);
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<W>(
      args.n,
      [&](auto tile, u64 row) {
        const ListHandle handle = table.handle_of(tile, keys[row]);
        table.retrieve(tile, handle, static_cast<Value*>(args.values) + args.offsets[row]);
      },
      [&](u64 row) { table.keys.prefetch_first(keys[row]); });
}

}  // namespace dg

/// Runs of equal keys in an ordered batch, in two launches with a sum between them. The structs are
/// mirrored in dgpuhash/backend/structs/core.py.
#pragma once

#include "batch/runs.cuh"
#include "core/atomic.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct RunCountArgs {
  RunOrder order;
  const void* keys;
  u64* counts;      // of each segment
  u64* mixed;       // added to: rows where the order does not tell a second key from the one before
  i64* mixed_rows;  // some of them
  u64 mixed_most;   // how many fit
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

struct RunMixedArgs {
  RunOrder order;
  const void* keys;
  const u64* mixed;  // how many
  const i64* mixed_rows;
  i64* firsts;   // of the rows to gather, for each mixed row
  i64* lengths;  // and how many; 0 where another mixed row stands for them
  u64* many;     // added to: those that are more than `most`
  u64 most;
  u64 rows;
  u64 n;  // room for mixed rows
};

struct RunMendArgs {
  RunOrder order;
  void* keys;
  void* values;
  u64* counts;  // of each segment: runs, which change
  const u64* mixed;
  const i64* firsts;
  const i64* lengths;
  void* scratch_keys;  // of as many rows as there are
  void* scratch_values;
  u64 most;  // more rows are left
  u64 segment_rows;
  u64 n;
};

struct RunWriteArgs {
  const void* keys;
  const u64* places;  // of each segment: its first run
  i64* starts;        // the first row of each run
  void* run_keys;
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

template <class Key, int W>
DG_KERNEL run_count(RunCountArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 runs =
        count_runs(tile, static_cast<const Key*>(args.keys), args.order,
                   segment * args.segment_rows, end_of_rows(args, segment), [&](u64 row) {
                     const u64 place = atomic_add<Order::relaxed>(args.mixed, 1);
                     if (place < args.mixed_most) args.mixed_rows[place] = static_cast<i64>(row);
                   });
    if (tile.lane() == tile.size - 1) args.counts[segment] = runs;
  });
}

/// Nothing when there is no room for all mixed rows.
template <class Key, int W>
DG_KERNEL run_mixed(RunMixedArgs args) {
  const u64 mixed = *args.mixed <= args.n ? *args.mixed : 0;
  for_each_tile<W>(mixed, [&](auto tile, u64 i) {
    const Key* keys = static_cast<const Key*>(args.keys);
    const MixedRows found = mixed_rows(
        tile, args.rows, [&](u64 row) { return args.order.owner(keys[row]); },
        [&](u64 row) { return keys[row]; }, static_cast<u64>(args.mixed_rows[i]));
    if (tile.lane() != 0) return;
    args.firsts[i] = static_cast<i64>(found.first);
    args.lengths[i] = static_cast<i64>(found.length);
    if (found.length > args.most) atomic_add<Order::relaxed>(args.many, 1);
  });
}

template <class Key, class Value, int W>
DG_KERNEL run_mend(RunMendArgs args) {
  const u64 mixed = *args.mixed <= args.n ? *args.mixed : 0;
  Key* const keys = static_cast<Key*>(args.keys);
  for_each_tile<W>(mixed, [&](auto tile, u64 i) {
    const u64 first = static_cast<u64>(args.firsts[i]);
    const u64 length = static_cast<u64>(args.lengths[i]);
    if (length == 0 || length > args.most) return;
    const auto recount = [&](u64 change) {
      for_each_run(tile, keys, first, first + length, [&](u64 row) {
        atomic_add<Order::relaxed>(args.counts + row / args.segment_rows, change);
      });
    };
    recount(~0ull);
    gather_keys(tile, args.order.seed, keys + first, static_cast<Value*>(args.values) + first,
                length, static_cast<Key*>(args.scratch_keys) + first,
                static_cast<Value*>(args.scratch_values) + first);
    tile.sync();
    recount(1);
  });
}

template <class Key, int W>
DG_KERNEL run_write(RunWriteArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    write_runs(tile, static_cast<const Key*>(args.keys), segment * args.segment_rows,
               end_of_rows(args, segment), args.places[segment], args.starts,
               static_cast<Key*>(args.run_keys));
  });
}

}  // namespace dg

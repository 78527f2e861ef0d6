/// Runs of equal keys in an ordered batch, in two launches with a sum between them. The structs are
/// mirrored in dgpuhash/backend/args.py.
#pragma once

#include "batch/runs.cuh"
#include "core/atomic.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct RunCountArgs {
  RunOrder order;
  const void* keys;
  u64* counts;      // of each segment
  u64* mixed;       // added to: rows where the order does not tell a key from the one before
  i64* mixed_rows;  // some of them
  u64 mixed_most;   // how many fit
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

struct RunMixedArgs {
  RunOrder order;
  const void* keys;
  const i64* mixed_rows;
  i64* firsts;   // of the rows to gather, for each mixed row
  i64* lengths;  // and how many; 0 where another mixed row stands for them
  u64 rows;
  u64 n;  // mixed rows
};

struct RunMendArgs {
  RunOrder order;
  void* keys;
  void* values;
  const i64* firsts;
  const i64* lengths;
  const i64* places;  // of each one's rows in the scratch
  void* scratch_keys;
  void* scratch_values;
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
    if (tile.lane() == 0) args.counts[segment] = runs;
  });
}

template <class Key>
DG_KERNEL run_mixed(RunMixedArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 i) {
    const MixedRows found = mixed_rows(static_cast<const Key*>(args.keys), args.rows, args.order,
                                       static_cast<u64>(args.mixed_rows[i]));
    args.firsts[i] = static_cast<i64>(found.first);
    args.lengths[i] = static_cast<i64>(found.length);
  });
}

template <class Key, class Value, int W>
DG_KERNEL run_mend(RunMendArgs args) {
  for_each_tile<W>(args.n, [&](auto tile, u64 i) {
    const u64 first = static_cast<u64>(args.firsts[i]);
    const u64 place = static_cast<u64>(args.places[i]);
    gather_keys(tile, args.order.seed, static_cast<Key*>(args.keys) + first,
                static_cast<Value*>(args.values) + first, static_cast<u64>(args.lengths[i]),
                static_cast<Key*>(args.scratch_keys) + place,
                static_cast<Value*>(args.scratch_values) + place);
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

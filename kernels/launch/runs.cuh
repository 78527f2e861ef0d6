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

struct RunWriteArgs {
  const void* keys;
  const u64* places;  // of each segment: its first run
  i64* starts;        // the first row of each run
  void* run_keys;
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

template <class Args>
DG_FN u64 end_of_rows(const Args& args, u64 segment) {
  const u64 end = (segment + 1) * args.segment_rows;
  return end < args.rows ? end : args.rows;
}

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

template <class Key, int W>
DG_KERNEL run_write(RunWriteArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    write_runs(tile, static_cast<const Key*>(args.keys), segment * args.segment_rows,
               end_of_rows(args, segment), args.places[segment], args.starts,
               static_cast<Key*>(args.run_keys));
  });
}

}  // namespace dg

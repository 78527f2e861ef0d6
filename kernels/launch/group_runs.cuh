/// Runs of equal keys in a batch that is ordered, or partitioned, by hash: two launches with a sum
/// between them.
#pragma once

#include "batch/group_runs.cuh"
#include "batch/part_runs.cuh"
#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"

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

  DG_FIELDS(order, keys, counts, mixed, mixed_rows, mixed_most, rows, segment_rows, n)
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

  DG_FIELDS(order, keys, mixed, mixed_rows, firsts, lengths, many, most, rows, n)
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

  DG_FIELDS(order, keys, values, counts, mixed, firsts, lengths, scratch_keys, scratch_values, most,
            segment_rows, n)
};

struct RunWriteArgs {
  const void* keys;
  const u64* places;  // of each segment: its first run
  i64* starts;        // the first row of each run
  void* run_keys;
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(keys, places, starts, run_keys, rows, segment_rows, n)
};

template <class Key, int W>
DG_KERNEL run_count(RunCountArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 runs =
        count_runs(tile, static_cast<const Key*>(args.keys), args.order,
                   segment * args.segment_rows, end_of_rows(args, segment), [&](u64 row) {
                     const u64 place = atomic_fetch_add<Order::relaxed>(args.mixed, 1);
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

struct PartRunsArgs {
  RunOrder order;
  void* keys;  // in the order of the parts; then, from where a part begins, its runs' first rows
  const void* values;
  const u64* bounds;  // where parts begin and the last one ends
  void* run_keys;     // from where a part begins, those of its runs
  void* values_to;
  u64* counts;       // of each part: runs
  u64 within;        // bits of the owner that tell the keys of a part apart
  u64 segment_rows;  // of the mean part
  u64 n;             // parts

  DG_FIELDS(order, keys, values, bounds, run_keys, values_to, counts, within, segment_rows, n)
};

struct RunPackArgs {
  const void* firsts;    // as `PartRunsArgs::keys`
  const void* run_keys;  // as there
  const u64* bounds;
  const u64* places;  // of each part: its first run; and the number of runs
  i64* starts;        // the first row of each run, and the last one's end
  void* run_keys_to;
  u64 segment_rows;  // of the mean part
  u64 n;             // parts

  DG_FIELDS(firsts, run_keys, bounds, places, starts, run_keys_to, segment_rows, n)
};

template <class Key, class Value, u32 Threads>
DG_BLOCK_KERNEL_OF(Threads, kPartBlocks)
part_runs(Sharing<PartRunsArgs, Threads, PartRunsOf<Key, Value>::template Memory> args) {
  for_each_block(args, [&](auto block, auto& memory, u64 part) {
    const u64 first = args.bounds[part];
    const u64 runs = group_part(
        block, memory, args.order, static_cast<u32>(args.within),
        static_cast<Key*>(args.keys) + first, static_cast<const Value*>(args.values) + first,
        args.bounds[part + 1] - first, static_cast<Key*>(args.run_keys) + first,
        static_cast<Value*>(args.values_to) + first);
    if (block.thread() == 0) args.counts[part] = runs;
    block.sync();
  });
}

template <class Key, int W>
DG_KERNEL run_pack(RunPackArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 part) {
    const u64 first = args.bounds[part], place = args.places[part];
    const u64 runs = args.places[part + 1] - place;
    const Key* firsts = static_cast<const Key*>(args.firsts) + first;
    const Key* run_keys = static_cast<const Key*>(args.run_keys) + first;
    if (part == args.n - 1 && tile.lane() == 0)
      args.starts[place + runs] = static_cast<i64>(args.bounds[args.n]);
    DG_UNROLL_BY_4
    for (u64 run = tile.lane(); run < runs; run += tile.size) {
      args.starts[place + run] = static_cast<i64>(first + firsts[run]);
      static_cast<Key*>(args.run_keys_to)[place + run] = run_keys[run];
    }
  });
}

}  // namespace dg

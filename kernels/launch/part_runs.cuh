/// Runs of equal keys in a batch that is partitioned by hash, in two launches with a sum between them.
/// The structs are mirrored in dgpuhash/backend/structs/segments.py.
#pragma once

#include "batch/part_runs.cuh"
#include "launch/for_each.cuh"

namespace dg {

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

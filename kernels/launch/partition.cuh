/// Stable partition of a batch by the hash of its keys, or by the keys themselves, in two launches
/// with a sum between them (backend/partition in Python).
#pragma once

#include "batch/partition.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct PartitionArgs {
  Digit digit;
  const void* keys;
  const void* values;  // where `Value` is not void
  void* keys_to;       // or null
  void* values_to;
  i64* numbers_to;  // or null; the rows' numbers
  u64* counters;    // parts x segments: rows from the count, places for the scatter
  u64 rows;
  u64 parts;
  u64 segment_rows;
  u64 n;  // segments
};

DG_FN u64 end_of_segment(const PartitionArgs& args, u64 segment) {
  const u64 end = (segment + 1) * args.segment_rows;
  return end < args.rows ? end : args.rows;
}

template <class Key, u32 Threads>
DG_BLOCK_KERNEL(Threads)
partition_count(Sharing<PartitionArgs, Threads, PartCounts> args) {
  for_each_block(args, [&](auto block, auto& counts, u64 segment) {
    for (u32 part = block.thread(); part < args.parts; part += block.threads) counts.of[part] = 0;
    block.sync();
    count_parts(block, counts, args.digit, static_cast<const Key*>(args.keys),
                segment * args.segment_rows, end_of_segment(args, segment));
    block.sync();
    for (u32 part = block.thread(); part < args.parts; part += block.threads)
      args.counters[part * args.n + segment] = counts.of[part];
    block.sync();
  });
}

/// `Value` is void where only keys or row numbers move.
template <class Key, class Value, u32 Threads>
DG_BLOCK_KERNEL(Threads)
partition_scatter(
    Sharing<PartitionArgs, Threads, PartStepOf<Key, typename StoredAs<Value>::Type>::template In>
        args) {
  using Word = typename StoredAs<Value>::Type;
  const PartColumns<Key, Word> columns{
      static_cast<const Key*>(args.keys), static_cast<const Word*>(args.values),
      static_cast<Key*>(args.keys_to), static_cast<Word*>(args.values_to), args.numbers_to};
  for_each_block(args, [&](auto block, auto& step, u64 segment) {
    for (u32 part = block.thread(); part < step.parts; part += block.threads)
      open_part(step, part, part < args.parts ? args.counters[part * args.n + segment] : 0);
    block.sync();
    scatter_parts(block, step, args.digit, columns, segment * args.segment_rows,
                  end_of_segment(args, segment));
  });
}

}  // namespace dg

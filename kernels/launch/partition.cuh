/// Partition of a batch by the hash of its keys, or by the keys themselves, in two launches with a sum
/// between them (backend/partition in Python).
#pragma once

#include "batch/partition.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"

namespace dg {

struct PartitionArgs {
  Digit digit;
  Route route;  // of rows that come in any order
  const void* keys;
  const void* values;  // where `Value` is not void
  void* keys_to;       // or null
  void* values_to;
  i64* numbers_to;        // or null; the rows' numbers, of rows that stay in order
  const void* more_keys;  // where rows from `more_first` on stand, which begins a share; or null
  const void* more_values;
  u64* counters;  // groups x parts x shares x pieces: rows from the count, places for the scatter
  // Or null; where groups begin and the last one ends: each is split by itself. Where the batch
  // comes in several shares, each has all groups, and those of one share follow those before.
  const u64* bounds;
  u64 rows;
  u64 more_first;
  u64 parts;
  u64 shares;
  u64 groups;       // of a share
  u64 digit_first;  // the least digit of the first group
  u64 digit_step;   // and how much greater that of the next one is
  u64 pieces;       // segments of a share's group
  u64 step_rows;
  u64 segment_rows;  // of the mean segment
  u64 n;             // segments

  DG_FIELDS(digit, route, keys, values, keys_to, values_to, numbers_to, more_keys, more_values,
            counters, bounds, rows, more_first, parts, shares, groups, digit_first, digit_step,
            pieces, step_rows, segment_rows, n)
};

/// Rows of a batch.
struct RowRange {
  u64 first;
  u64 last;
};

/// A segment's rows, where its count of the first part stands, and the digit of that.
struct PartSegment : RowRange {
  u64 counter;
  u32 digit;
};

/// One of a group's segments, which have whole steps of rows, but for the last.
DG_FN RowRange segment_of(RowRange group, u64 piece, u64 pieces, u64 step_rows) {
  const u64 whole = pieces * step_rows, end = group.last;
  const u64 rows = (end - group.first + whole - 1) / whole * step_rows;
  const u64 first = group.first + piece * rows;
  return {first < end ? first : end, first + rows < end ? first + rows : end};
}

DG_FN PartSegment segment_at(const PartitionArgs& args, u64 number) {
  const u64 run = number / args.pieces, piece = number % args.pieces;
  const u64 share = run / args.groups, group = run % args.groups;
  const u64 begin = args.bounds ? args.bounds[run] : 0;
  const u64 end = args.bounds ? args.bounds[run + 1] : args.rows;
  return {segment_of({begin, end}, piece, args.pieces, args.step_rows),
          (group * args.parts * args.shares + share) * args.pieces + piece,
          static_cast<u32>(args.digit_first + group * args.digit_step)};
}

/// A column, where the rows of a segment stand.
template <class Word>
DG_FN const Word* column_at(const PartitionArgs& args, const RowRange& rows, const void* column,
                            const void* more) {
  if (rows.first < args.more_first) return static_cast<const Word*>(column);
  return static_cast<const Word*>(more) - args.more_first;
}

/// Between a segment's counters of two parts.
DG_FN u64 counter_step(const PartitionArgs& args) { return args.shares * args.pieces; }

template <class Key, u32 Threads>
DG_BLOCK_KERNEL(Threads)
partition_count(Sharing<PartitionArgs, Threads, PartCounts> args) {
  for_each_block(args, [&](auto block, auto& counts, u64 number) {
    const PartSegment segment = segment_at(args, number);
    for (u32 part = block.thread(); part < args.parts; part += block.threads) counts.of[part] = 0;
    block.sync();
    count_parts(block, counts, RoutedDigit{args.digit, args.route, segment.digit},
                column_at<Key>(args, segment, args.keys, args.more_keys), segment.first,
                segment.last);
    block.sync();
    for (u32 part = block.thread(); part < args.parts; part += block.threads)
      args.counters[segment.counter + part * counter_step(args)] = counts.of[part];
    block.sync();
  });
}

template <class Key, class Value, Within within, class Shared>
DG_FN void scatter_segments(const Shared& args) {
  using Word = typename StoredAs<Value>::Type;
  for_each_block(args, [&](auto block, auto& step, u64 number) {
    const PartSegment segment = segment_at(args, number);
    const PartColumns<Key, Word> columns{
        column_at<Key>(args, segment, args.keys, args.more_keys),
        column_at<Word>(args, segment, args.values, args.more_values),
        static_cast<Key*>(args.keys_to), static_cast<Word*>(args.values_to), args.numbers_to};
    for (u32 part = block.thread(); part < step.parts; part += block.threads)
      open_part(step, part,
                part < args.parts ? args.counters[segment.counter + part * counter_step(args)] : 0);
    block.sync();
    if constexpr (within == Within::order)
      scatter_parts(block, step, args.digit, columns, segment.first, segment.last);
    else
      scatter_parts(block, step, RoutedDigit{args.digit, args.route, segment.digit}, columns,
                    segment.first, segment.last);
  });
}

template <class Key, class Value, u32 Threads, Within within>
using PartitionSharing =
    Sharing<PartitionArgs, Threads,
            PartStepOf<Key, typename StoredAs<Value>::Type, within>::template In>;

/// Rows of a part stay in order. `Value` is void where only keys or row numbers move.
template <class Key, class Value, u32 Threads>
DG_BLOCK_KERNEL(Threads)
partition_scatter(PartitionSharing<Key, Value, Threads, Within::order> args) {
  scatter_segments<Key, Value, Within::order>(args);
}

/// Rows of a part come in any order.
template <class Key, class Value, u32 Threads>
DG_BLOCK_KERNEL(Threads)
partition_strew(PartitionSharing<Key, Value, Threads, Within::any_order> args) {
  scatter_segments<Key, Value, Within::any_order>(args);
}

}  // namespace dg

/// Batches in the order of their hashes into an empty table, most of them without an atomic.
#pragma once

#include "launch/for_each.cuh"
#include "table/open.cuh"

namespace dg {

struct OpenSettleArgs {
  OpenStorage table;  // cleared
  const void* keys;   // different ones, by ascending hash
  const void* values;
  u64* later;  // rows whose first buckets have no slot for them, from each segment's first row on
  u64* late;   // how many, of each segment
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

/// A key's rank among the keys of its first bucket is its slot there. Segments need not agree on more
/// than the rows, so that no slot is written twice; the keys that find their bucket full are told of.
template <class Key, class Value, int W>
DG_KERNEL open_settle(OpenSettleArgs args) {
  using Table = OpenTable<Key, Value>;
  constexpr u64 room = Table::Slots::per_bucket;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Value* values = static_cast<const Value*>(args.values);
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows, last = end_of_rows(args, segment);
    u64 bucket_before = first > 0 ? table.first_bucket(keys[first - 1]) : ~0ull;
    // Rows just before that have this bucket, as far as ranks below `room` tell.
    u64 held = 0;
    for (u32 others = first == 0; others == 0 && held < room;) {
      const u64 back = held + tile.lane() + 1;
      others = tile.ballot(back > first || table.first_bucket(keys[first - back]) != bucket_before);
      held += others ? lowest_one(others) : tile.size;
    }
    u64 late = first;
    for (u64 start = first; start < last; start += tile.size) {
      const u64 row = start + tile.lane();
      const bool inside = row < last;
      const Key key = inside ? keys[row] : Key{0};
      const u64 bucket = inside ? table.first_bucket(key) : ~0ull;
      const u64 left = tile.shuffle(bucket, (tile.lane() - 1) & (tile.size - 1));
      const u32 heads = tile.ballot(bucket != (tile.lane() == 0 ? bucket_before : left));
      const u32 behind = heads & (ones_below(tile.lane()) | 1u << tile.lane());
      const u64 rank = behind ? tile.lane() - highest_one(behind) : held + tile.lane();
      const bool fits = rank < room && !Table::reserved(key);
      if (inside && fits) table.fill(bucket * room + rank, key, values[row]);
      const u32 others = tile.ballot(inside && !fits);
      if (inside && !fits) args.later[late + count_ones(others & ones_below(tile.lane()))] = row;
      late += count_ones(others);
      held = heads ? tile.size - highest_one(heads) : held + tile.size;
      bucket_before = tile.shuffle(bucket, tile.size - 1);
    }
    if (tile.lane() == 0) args.late[segment] = late - first;
  });
}

/// Stores the keys that `open_settle` told of.
template <class Key, class Value, int W>
DG_KERNEL open_settle_late(OpenSettleArgs args) {
  const OpenTable<Key, Value> table{args.table};
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64* const later = args.later + segment * args.segment_rows;
    for (u64 i = 0; i < args.late[segment]; ++i)
      table.insert(tile, static_cast<const Key*>(args.keys)[later[i]],
                   static_cast<const Value*>(args.values)[later[i]], table.unlimited);
  });
}

}  // namespace dg

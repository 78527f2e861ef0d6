/// How two-level cuckoo tables are built (thesis §5.2): phase 1 deals the rows to buckets, phase 2 builds
/// each bucket's subtables in the shared memory of a block.
#pragma once

#include "grid/for_each.cuh"
#include "table/methods/two_level_block.cuh"

namespace dg {

struct TwoLevelDealArgs {
  TwoLevelCuckooStorage table;
  const void* keys;
  const void* values;  // unused by sets
  u32* counts;         // of each bucket's rows
  u32* offsets;        // of each row in its bucket; undefined where the key is reserved
  const u64* starts;   // of each bucket's rows
  void* dealt_keys;    // bucket by bucket
  void* dealt_values;
  u64 n;

  DG_FIELDS(table, keys, values, counts, offsets, starts, dealt_keys, dealt_values, n)
};

struct TwoLevelBuildArgs {
  TwoLevelCuckooStorage table;
  const void* keys;    // bucket by bucket
  const void* values;  // unused by sets
  const u64* starts;   // of each bucket's rows, and the last one's end
  const u32* seeds;    // what buckets try one after the other, 16 bits each
  u64 attempts;        // how many seeds
  u64 segment_rows;    // rows that a bucket is made for
  u64 n;               // buckets

  DG_FIELDS(table, keys, values, starts, seeds, attempts, segment_rows, n)
};

/// The first half of phase 1: counts the rows of each bucket, and what a counter held is a row's offset.
template <class Table>
DG_KERNEL two_level_count(TwoLevelDealArgs args) {
  const Table table{args.table};
  const auto* keys = static_cast<const typename Table::Key*>(args.keys);
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const auto key = keys[row];
    if (is_reserved(key)) return;
    u32* count = args.counts + table.bucket_of(table.bits_of(key));
    args.offsets[row] = atomic_fetch_add<Order::relaxed>(count, 1u);
  });
}

/// The second half: moves the rows to their buckets.
template <class Table>
DG_KERNEL two_level_scatter(TwoLevelDealArgs args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const Key key = keys[row];
    if (is_reserved(key)) return;
    const u64 place = args.starts[table.bucket_of(table.bits_of(key))] + args.offsets[row];
    static_cast<Key*>(args.dealt_keys)[place] = key;
    if constexpr (Table::has_value)
      static_cast<Value*>(args.dealt_values)[place] = static_cast<const Value*>(args.values)[row];
  });
}

/// Phase 2, a block for each bucket. A bucket that no seed serves adds its rows to those that found no place.
template <class Table, int Threads>
DG_BLOCK_KERNEL(Threads)
two_level_build(Sharing<TwoLevelBuildArgs, Threads, CuckooBlockOf<Table>::template Memory> args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  for_each_block(args, [&](auto block, auto& memory, u64 number) {
    using Memory = CuckooBlockOf<Table>::template Memory<decltype(block)>;
    const u32 bucket = static_cast<u32>(number);
    const u64 first = args.starts[bucket];
    const Value* values = nullptr;
    if constexpr (Table::has_value) values = static_cast<const Value*>(args.values) + first;
    const CuckooBlock<Table, Memory> building{table, memory,
                                              static_cast<const Key*>(args.keys) + first, values,
                                              static_cast<u32>(args.starts[bucket + 1] - first)};
    building.begin(block);
    u32 seed = 0, iterations = building.failed, attempt = 0;
    for (; attempt < args.attempts && iterations == building.failed; ++attempt) {
      seed = args.seeds[attempt];
      iterations = building.place_all(block, seed, attempt);
    }
    const bool built = iterations != building.failed;
    if (built) building.store(block, bucket, seed, iterations);
    block.sync();
    if (block.thread() == 0) {
      TableState* state = args.table.state;
      if (!built) {
        atomic_add<Order::relaxed>(&state->pending, u64{building.rows});
      } else {
        args.table.seeds[bucket] = BucketSeed::of(seed, iterations, attempt).bits;
        atomic_add<Order::relaxed>(&state->links, u64{memory.stored});
        atomic_add<Order::relaxed>(&state->occupied,
                                   u64{Table::has_lists ? building.rows : memory.stored});
      }
    }
  });
}

}  // namespace dg

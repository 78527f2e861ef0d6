/// How a chained table is built (thesis §4.2): rows learn their buckets, a radix sort brings the buckets
/// together, and neighbours tell where buckets end.
#pragma once

#include "grid/for_each.cuh"
#include "table/methods/chained.cuh"

namespace dg {

struct ChainedBucketArgs {
  ChainedStorage table;
  const void* keys;
  u32* buckets;  // of each row
  u64 n;

  DG_FIELDS(table, keys, buckets, n)
};

template <class Table>
DG_KERNEL chained_buckets(ChainedBucketArgs args) {
  const Table table{args.table};
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    args.buckets[row] = table.bucket_of(static_cast<const typename Table::Key*>(args.keys)[row]);
  });
}

struct ChainedEndArgs {
  const u32* sorted;  // each entry's bucket
  u32* ends;          // 0 before
  u64 buckets;
  u64 n;

  DG_FIELDS(sorted, ends, buckets, n)
};

/// The last row of a bucket writes its end, and those of the empty buckets behind it; the last row of all closes
/// the tail.
DG_KERNEL chained_ends(ChainedEndArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const u64 next = row + 1 < args.n ? args.sorted[row + 1] : args.buckets;
    for (u64 bucket = args.sorted[row]; bucket < next; ++bucket)
      args.ends[bucket] = static_cast<u32>(row + 1);
  });
}

}  // namespace dg

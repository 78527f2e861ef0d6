/// Reductions by group over a whole batch. Structs are mirrored in dgpuhash/backend/args.py.
#pragma once

#include "batch/reduce.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct ReduceArgs {
  ReduceBatch batch;
  const i64* edges;  // or null; where each segment begins, and the last one ends
  u64 rows;
  u64 segment_rows;  // of each segment, or of an average one where there are edges
  u64 groups;
  u64 copies;  // 1, or one for each segment
  u64 n;       // segments
};

template <int W>
DG_KERNEL group_reduce(ReduceArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    u64 first = segment * args.segment_rows;
    u64 last = first + args.segment_rows < args.rows ? first + args.segment_rows : args.rows;
    if (args.edges) {
      first = static_cast<u64>(args.edges[segment]);
      last = static_cast<u64>(args.edges[segment + 1]);
    }
    const u64 copy = args.copies == 1 ? 0 : segment;
    reduce_segment(tile, args.batch, first, last, copy * args.groups);
  });
}

}  // namespace dg

/// Stable partition by destination, in two launches with a sum between them (backend/multisplit in
/// Python).
#pragma once

#include "batch/multisplit.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct MultisplitArgs {
  const u32* destinations;  // each below `parts`
  u64* counters;            // segments x parts: zero before the count, places before the scatter
  i64* order;               // of the scatter: row numbers by destination
  u64 rows;
  u64 parts;
  u64 segment_rows;
  u64 n;  // segments
};

template <int W>
DG_KERNEL multisplit_count(MultisplitArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows;
    const u64 last = first + args.segment_rows < args.rows ? first + args.segment_rows : args.rows;
    count_segment(tile, args.destinations, first, last, args.counters + segment * args.parts);
  });
}

template <int W>
DG_KERNEL multisplit_scatter(MultisplitArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows;
    const u64 last = first + args.segment_rows < args.rows ? first + args.segment_rows : args.rows;
    scatter_segment(tile, args.destinations, first, last, args.counters + segment * args.parts,
                    args.order);
  });
}

}  // namespace dg

/// Row numbers of the pairs of a join. The structs are mirrored in dgpuhash/backend/args.py.
#pragma once

#include "batch/join.cuh"
#include "batch/select.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct JoinPairsArgs {
  JoinSides sides;
  i64* left;
  i64* right;
  u64 pairs;
  u64 segment_pairs;
  u64 n;  // segments
};

struct JoinSelectArgs {
  const i64* partner;  // of each left row, -1 for none
  const i64* ends;     // of each segment: rows chosen in it and before
  i64* left;
  i64* right;  // unused where rows are alone
  u64 alone;   // 1: rows without a partner are chosen
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

template <int W>
DG_KERNEL join_select(JoinSelectArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows;
    const u64 last = first + args.segment_rows < args.rows ? first + args.segment_rows : args.rows;
    const u64 to = segment == 0 ? 0 : static_cast<u64>(args.ends[segment - 1]);
    select_rows(tile, args.partner, first, last, to, args.alone != 0, args.left, args.right);
  });
}

template <int W>
DG_KERNEL join_pairs(JoinPairsArgs args) {
  for_each_segment<W>(args.n, args.segment_pairs, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_pairs;
    const u64 last =
        first + args.segment_pairs < args.pairs ? first + args.segment_pairs : args.pairs;
    write_pairs(tile, args.sides, first, last, args.left, args.right);
  });
}

}  // namespace dg

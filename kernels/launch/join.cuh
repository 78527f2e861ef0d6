/// Row numbers of the pairs of a join. The structs are mirrored in dgpuhash/backend/args.py.
#pragma once

#include "batch/join.cuh"
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

/// Batches for Bloom filters. A row is a key, or a block.
#pragma once

#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "table/bloom.cuh"

namespace dg {

struct BloomInsertArgs {
  BloomBlocks filter;
  const void* keys;
  u64 n;

  DG_FIELDS(filter, keys, n)
};

struct BloomContainsArgs {
  BloomBlocks filter;
  const void* keys;
  u8* passed;  // 1 where the key may have been inserted
  u64 n;

  DG_FIELDS(filter, keys, passed, n)
};

struct BloomFillArgs {
  const u64* words;
  u64* ones;
  u64* passing;  // summed over the blocks
  u64 n;

  DG_FIELDS(words, ones, passing, n)
};

template <class Key, int W>
DG_KERNEL bloom_insert(BloomInsertArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n,
      [&](auto tile, u64 row, bool asked) {
        args.filter.insert(tile, asked ? keys[row] : Key{0}, asked);
      },
      [&](u64 row) { args.filter.prefetch_for(keys[row]); });
}

template <class Key, int W>
DG_KERNEL bloom_contains(BloomContainsArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n,
      [&](auto tile, u64 row, bool asked) {
        const bool passed = args.filter.contains(tile, asked ? keys[row] : Key{0}, asked);
        if (asked) args.passed[row] = passed;
      },
      [&](u64 row) { args.filter.prefetch_for(keys[row]); });
}

/// How full the blocks are.
DG_KERNEL bloom_fill(BloomFillArgs args) {
  for_each_tile<1>(
      args.n, Totals<2>{{args.ones, args.passing}},
      [&](auto, u64 row, Tally<2>& tally) {
        const BloomFill fill(args.words + row * kBloomWords);
        tally.of[0] += fill.ones;
        tally.of[1] += static_cast<i64>(fill.pass);
      },
      NoPrefetch{});
}

}  // namespace dg

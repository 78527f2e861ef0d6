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
  u8* passed;  // 1 where the key may have been inserted; aligned to 4 bytes
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
        args.filter.insert(tile, asked ? load_leaving(keys + row) : Key{0}, asked);
      },
      [&](u64 row) { args.filter.prefetch_for(keys[row]); });
}

/// Keys whose blocks a lane of a GPU reads at once. On an H100, 2^27 words of 4 bytes are looked up in a
/// filter of 32 MiB at 91 G/s by four, at 87 by two.
#if DG_GPU || defined(DG_LOCKSTEP)
inline constexpr u32 kBloomKeys = 4;
#else
inline constexpr u32 kBloomKeys = 1;
#endif

/// Stores the flags of `count` rows a lane, from `first` on: bit l of `passed[i]` is that of row
/// i * Width + l.
template <u32 count, class Tile>
DG_FN void store_flags(Tile tile, const u32 (&passed)[count], u8* to, u64 first, u64 n) {
  constexpr u32 width = Tile::size;
  const u32 lane = tile.lane();
  if constexpr (count == 4 && width >= 4) {
    // Each lane has the four bytes of neighbouring rows.
    const u64 row = first + 4 * lane;
    const bool odd = lane & width / 4;
    const u32 mask =
        lane & width / 2 ? (odd ? passed[3] : passed[2]) : (odd ? passed[1] : passed[0]);
    const u32 bits = mask >> 4 * lane % width & 15;
    if (row + 4 <= n) return store_leaving(to + row, bits * 0x00204081 & 0x01010101);
    for (u32 i = 0; row + i < n; ++i) to[row + i] = bits >> i & 1;
  } else {
    DG_UNROLL
    for (u32 i = 0; i < count; ++i) {
      const u64 row = first + i * width + lane;
      if (row < n) to[row] = passed[i] >> lane & 1;
    }
  }
}

template <class Key, int W>
DG_KERNEL bloom_contains(BloomContainsArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_group<W, kBloomKeys>(
      args.n,
      [&](auto tile, u64 first) {
        Key words[kBloomKeys];
        bool asked[kBloomKeys];
        DG_UNROLL
        for (u32 i = 0; i < kBloomKeys; ++i) {
          const u64 row = first + i * tile.size + tile.lane();
          asked[i] = row < args.n;
          words[i] = asked[i] ? load_leaving(keys + row) : Key{0};
        }
        u32 passed[kBloomKeys];
        args.filter.contains(tile, words, asked, passed);
        store_flags(tile, passed, args.passed, first, args.n);
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

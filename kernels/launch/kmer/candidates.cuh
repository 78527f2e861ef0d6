/// The hits of reads into their best candidates. Rows are reads, each taken by a tile.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "kmer/candidates.cuh"
#include "kmer/lane_candidates.cuh"

namespace dg {

struct CandidateArgs {
  const u64* hits;     // of one read after another, in any order
  const i64* offsets;  // of each read: its first hit; and the end of the last one's
  const u32* reaches;  // of each read: how many windows a run spans at most
  const u32* taxa;     // of each target, or 0
  u64* counted_hits;   // `kPlacesOfHit` places for each hit
  u32* hit_counts;
  u32* targets;  // of each read: `most` places
  u32* counts;
  u32* top_taxa;
  u32* firsts;  // or null
  u32* lasts;
  u64 most;
  u64 n;

  DG_FIELDS(hits, offsets, reaches, taxa, counted_hits, hit_counts, targets, counts, top_taxa,
            firsts, lasts, most, n)
};

/// Hits of a read that one lane counts in memory of its own; and those that a lane of a tile has in registers at once,
/// of reads that have no more hits in all, and of others.
inline constexpr u64 kHitsAlone = 512;
inline constexpr u32 kHitsOfLane = 4;

template <int W>
DG_KERNEL candidate_find(CandidateArgs args) {
  for_each_tile<W>(args.n, [&](auto tile, u64 row) {
    constexpr u64 lanes = decltype(tile)::size;
    const u64 begin = static_cast<u64>(args.offsets[row]), place = row * args.most;
    const u64 n = static_cast<u64>(args.offsets[row + 1]) - begin;
    const u64* hits = args.hits + begin;
    const u32 reach = args.reaches[row];
    TopList top{args.targets + place,
                args.counts + place,
                args.top_taxa + place,
                args.firsts ? args.firsts + place : nullptr,
                args.lasts ? args.lasts + place : nullptr,
                static_cast<u32>(args.most)};
    const CountedHits room{args.counted_hits + begin * kPlacesOfHit,
                           args.hit_counts + begin * kPlacesOfHit};
    if constexpr (lanes == 1) {
      const auto meet = [&](const CountedHits& of) {
        const u64 distinct = count_hits(hits, n, of);
        sort_hits(of, distinct);
        meet_candidates(of, distinct, reach, args.taxa, top);
        top.fill();
      };
      if (n > kHitsAlone) return meet(room);
      u64 own_hits[kHitsAlone * kPlacesOfHit];
      u32 own_counts[kHitsAlone * kPlacesOfHit];
      meet({own_hits, own_counts});
    } else {
      const u32 few = static_cast<u32>(n);
      if (n <= lanes)
        meet_in_lanes<1>(tile, hits, few, reach, args.taxa, top);
      else if (n <= 2 * lanes)
        meet_in_lanes<2>(tile, hits, few, reach, args.taxa, top);
      else if (n <= kHitsOfLane * lanes)
        meet_in_lanes<kHitsOfLane>(tile, hits, few, reach, args.taxa, top);
      else
        meet_in_memory<kHitsOfLane>(tile, hits, n, room, reach, args.taxa, top);
    }
  });
}

struct CoverArgs {
  const u32* targets;
  const u32* counts;
  const u32* firsts;
  const u32* lasts;
  const i64* windows;  // of each target: the bit of its first window
  u32* covered;        // bits
  u64 least;           // hits of a candidate that counts
  u64 n;               // candidates of all reads

  DG_FIELDS(targets, counts, firsts, lasts, windows, covered, least, n)
};

/// Marks the windows of the candidates' best runs.
DG_KERNEL candidate_cover(CoverArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const u32 count = args.counts[row];
    if (count == 0 || count < args.least) return;
    const u64 first = static_cast<u64>(args.windows[args.targets[row]]);
    for (u64 at = first + args.firsts[row]; at <= first + args.lasts[row]; ++at)
      atomic_or<Order::relaxed>(args.covered + at / 32, 1u << at % 32);
  });
}

}  // namespace dg

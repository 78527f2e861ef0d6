/// The best candidates of reads into calls. Rows are reads; tiles have one lane.
#pragma once

#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "kmer/lineage.cuh"

namespace dg {

struct LineageArgs {
  const u32* targets;   // of each read: `most` places
  const u32* counts;    // hits of each candidate, 0 of none
  const u32* lineages;  // of each target: `kRanks` numbers of taxa
  const i64* taxids;    // by number
  const u8* kept;       // of each target: whether it may be a candidate; or null: all
  i64* calls;           // taxids; of sequences, the number of the target from 1, negative
  u32* hits;            // of the best candidate
  u64 hitmin;
  u64 lowest;
  u64 highest;
  u64 most;
  float share;
  u64 n;

  DG_FIELDS(targets, counts, lineages, taxids, kept, calls, hits, hitmin, lowest, highest, most,
            share, n)
};

DG_KERNEL lineage_call(LineageArgs args) {
  const CallRule rule{static_cast<u32>(args.hitmin), args.share, static_cast<u32>(args.lowest),
                      static_cast<u32>(args.highest)};
  const Lineages of{args.lineages};
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const u32 most = static_cast<u32>(args.most);
    const u32* targets = args.targets + row * most;
    const u32* counts = args.counts + row * most;
    u32 place = 0;
    const u32 rank = rank_of_call(rule, of, targets, counts, most, args.kept, place);
    args.hits[row] = place < most ? counts[place] : 0;
    if (rank == kRanks)
      args.calls[row] = 0;
    else if (rank == 0)
      args.calls[row] = -1 - static_cast<i64>(targets[place]);
    else
      args.calls[row] = args.taxids[of.at(targets[place], rank)];
  });
}

}  // namespace dg

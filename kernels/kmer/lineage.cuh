/// The call of a read: the lowest taxon that its best candidates have in common.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// Places of a ranked lineage, from the sequence itself up to the root.
inline constexpr u32 kRanks = 21;

/// Ranked lineages of targets: numbers of taxa, 0 where a rank has none. Those of sequences are targets, from 1.
struct Lineages {
  const u32* numbers;

  DG_FN u32 at(u32 target, u32 rank) const {
    return numbers[static_cast<u64>(target) * kRanks + rank];
  }

  /// The first rank, from one on, that the target has; `kRanks` where there is none.
  DG_FN u32 rank_from(u32 target, u32 rank) const {
    while (rank < kRanks && at(target, rank) == 0) ++rank;
    return rank;
  }

  /// The first rank, from one on, at which two targets have one taxon; `kRanks` where there is none.
  DG_FN u32 common_from(u32 one, u32 other, u32 rank) const {
    while (rank < kRanks && (at(one, rank) == 0 || at(one, rank) != at(other, rank))) ++rank;
    return rank;
  }
};

/// What decides a call.
struct CallRule {
  u32 hitmin;
  float share;  // of the hits above hitmin, which further candidates exceed
  u32 lowest;   // ranks
  u32 highest;
};

/// The rank at which the first candidate's lineage is called, `kRanks` for no call. Candidates are in the order
/// of their hits, and end with the first one without; those of targets that are not `kept` are left out. The
/// place of the first one is returned, too.
DG_FN u32 rank_of_call(const CallRule& rule, const Lineages& of, const u32* targets,
                       const u32* hits, u32 most, const u8* kept, u32& place) {
  const auto is_left_out = [&](u32 at) { return kept && !kept[targets[at]]; };
  place = 0;
  while (place < most && hits[place] != 0 && is_left_out(place)) ++place;
  if (place == most || hits[place] == 0 || hits[place] < rule.hitmin) return kRanks;
  const u32 top = hits[place], target = targets[place];
  const float threshold =
      top > rule.hitmin ? static_cast<float>(top - rule.hitmin) * rule.share : 0;
  u32 rank = of.rank_from(target, rule.lowest);
  for (u32 at = place + 1; at < most && rank < kRanks; ++at) {
    if (hits[at] != 0 && is_left_out(at)) continue;
    if (!(static_cast<float>(hits[at]) > threshold)) break;
    rank = of.common_from(target, targets[at], rank);
  }
  return rank > rule.highest ? kRanks : rank;
}

}  // namespace dg

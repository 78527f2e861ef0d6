/// Letters of low complexity by symmetric DUST (Morgulis and others, J. Comput. Biol. 13:1028, 2006).
///
/// The score of an interval is the number of its pairs of equal triplets over its number of triplets
/// less one. Masked are intervals of at most 64 letters with a score above 2 in which no interval has
/// a higher one. Whether an interval is masked depends on its own letters alone, so that a letter
/// needs 63 on each side.
#pragma once

#include <algorithm>

#include "core/platform.cuh"
#include "kmer/bases.cuh"

namespace dg {

class Dust {
 public:
  static constexpr i64 kWindow = 64;

  /// Writes N over the letters of low complexity from `from` to before `to`, of a record with letters
  /// from `begin` to before `end`.
  void mask(const u8* letters, i64 begin, i64 end, i64 from, i64 to, u8* out) {
    const i64 first = std::max(begin, from - kWindow + 1), last = std::min(end, to + kWindow - 1);
    i64 bases = 0;
    u32 triplet = 0;
    clear();
    for (i64 at = first; at < last; ++at) {
      const u32 base = base_of(letters[at]);
      if (base == kNoBase) {
        if (bases) clear();
        bases = 0;
        continue;
      }
      triplet = (triplet << 2 | base) & (kKinds - 1);
      if (++bases < 3) continue;
      push(triplet);
      if (pairs_ * kShare <= kThreshold * (end_ - suffix_)) continue;
      const i64 lowest = perfect();
      if (lowest < 0) continue;
      // Triplets are counted from the first letter of the bases.
      const i64 start = std::max(at - bases + 1 + lowest, from);
      const i64 finish = std::min(at + 1, to);
      if (start < finish) std::fill(out + start, out + finish, u8{'N'});
    }
  }

 private:
  static constexpr u32 kKinds = 64;
  static constexpr i64 kTriplets = kWindow - 2;
  // A score is compared as kShare * pairs with kThreshold * (triplets - 1).
  static constexpr i64 kThreshold = 20, kShare = 10;
  // Of so many triplets of a kind at most, no interval is above the threshold.
  static constexpr i64 kMost = 2 * kThreshold / kShare;

  struct Score {
    i64 pairs = 0, steps = 1;

    bool is_above(const Score& other) const { return pairs * other.steps > other.pairs * steps; }
  };

  void clear() {
    std::fill(counts_, counts_ + kKinds, 0);
    std::fill(of_suffix_, of_suffix_ + kKinds, 0);
    first_ = suffix_ = end_ = pairs_ = suffix_pairs_ = 0;
  }

  /// Moves the window of triplets by one, and the longest suffix with at most kMost of a kind.
  void push(u32 triplet) {
    if (end_ - first_ == kTriplets) {
      pairs_ -= --counts_[ring_[first_ % kKinds]];
      if (suffix_ == first_) shorten();
      ++first_;
    }
    ring_[end_ % kKinds] = triplet;
    best_[end_ % kKinds] = {};
    ++end_;
    pairs_ += counts_[triplet]++;
    suffix_pairs_ += of_suffix_[triplet]++;
    while (of_suffix_[triplet] > kMost) shorten();
  }

  void shorten() { suffix_pairs_ -= --of_suffix_[ring_[suffix_++ % kKinds]]; }

  /// The first triplet of the longest interval to be masked that ends with the last one; -1: none.
  i64 perfect() {
    i64 counts[kKinds], pairs = suffix_pairs_, lowest = -1;
    std::copy(of_suffix_, of_suffix_ + kKinds, counts);
    Score best;
    for (i64 at = suffix_ - 1; at >= first_; --at) {
      pairs += counts[ring_[at % kKinds]]++;
      const Score here{pairs, end_ - 1 - at};
      if (best_[at % kKinds].is_above(best)) best = best_[at % kKinds];
      if (here.pairs * kShare <= kThreshold * here.steps || best.is_above(here)) continue;
      best = best_[at % kKinds] = here;
      lowest = at;
    }
    return lowest;
  }

  u32 ring_[kKinds];
  i64 counts_[kKinds], of_suffix_[kKinds];
  Score best_[kKinds];  // of the intervals that begin with a triplet and were masked
  i64 first_, suffix_, end_, pairs_, suffix_pairs_;
};

}  // namespace dg

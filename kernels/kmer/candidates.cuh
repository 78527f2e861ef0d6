/// From the hits of a read to its candidates: hits of one window are counted, and the best run of neighbouring
/// windows of each target is a candidate (MetaCache, Müller et al. 2017).
#pragma once

#include "core/hash.cuh"
#include "core/platform.cuh"

namespace dg {

/// A hit is a target, above, and a window of it.
DG_FN u32 target_of(u64 hit) { return static_cast<u32>(hit >> 32); }
DG_FN u32 window_of(u64 hit) { return static_cast<u32>(hit); }

inline constexpr u64 kNoHit = ~0ull;
/// Places that counting takes for each hit.
inline constexpr u64 kPlacesOfHit = 2;

/// Distinct hits and how often each came.
struct CountedHits {
  u64* hits;
  u32* counts;

  DG_FN void swap(u64 one, u64 other) const {
    const u64 hit = hits[one];
    const u32 count = counts[one];
    hits[one] = hits[other];
    counts[one] = counts[other];
    hits[other] = hit;
    counts[other] = count;
  }
};

/// Counts n hits in a hash table of `kPlacesOfHit` times as many places, and moves the distinct ones to its
/// front, in no order; returns how many there are.
DG_FN u64 count_hits(const u64* hits, u64 n, const CountedHits& to) {
  const u64 places = n * kPlacesOfHit;
  for (u64 at = 0; at < places; ++at) {
    to.hits[at] = kNoHit;
    to.counts[at] = 0;
  }
  for (u64 row = 0; row < n; ++row) {
    const u64 hit = hits[row];
    u64 at = mulhi(hit * 0x9e3779b97f4a7c15ull ^ hit << 41, places);
    while (to.hits[at] != kNoHit && to.hits[at] != hit)
      if (++at == places) at = 0;
    to.hits[at] = hit;
    ++to.counts[at];
  }
  u64 distinct = 0;
  for (u64 at = 0; at < places; ++at) {
    if (to.hits[at] == kNoHit) continue;
    to.hits[distinct] = to.hits[at];
    to.counts[distinct++] = to.counts[at];
  }
  return distinct;
}

/// Sorts n distinct hits: few one by one, many as a heap.
DG_FN void sort_hits(const CountedHits& of, u64 n) {
  if (n <= 64) {
    for (u64 row = 1; row < n; ++row) {
      const u64 hit = of.hits[row];
      const u32 count = of.counts[row];
      u64 at = row;
      for (; at > 0 && of.hits[at - 1] > hit; --at) {
        of.hits[at] = of.hits[at - 1];
        of.counts[at] = of.counts[at - 1];
      }
      of.hits[at] = hit;
      of.counts[at] = count;
    }
    return;
  }
  const auto sink = [&](u64 at, u64 end) {
    for (u64 child = 2 * at + 1; child < end; child = 2 * at + 1) {
      if (child + 1 < end && of.hits[child + 1] > of.hits[child]) ++child;
      if (of.hits[at] >= of.hits[child]) return;
      of.swap(at, child);
      at = child;
    }
  };
  for (u64 at = n / 2; at > 0; --at) sink(at - 1, n);
  for (u64 end = n - 1; end > 0; --end) {
    of.swap(0, end);
    sink(0, end);
  }
}

/// The best candidates of a read, at most one for each taxon: those with most hits first, of equal ones the
/// lower target.
struct TopList {
  u32* targets;
  u32* hits;
  u32* taxa;
  u32* firsts;  // windows of the best run; or null
  u32* lasts;
  u32 most;
  u32 size = 0;

  DG_FN void move(u32 from, u32 to) const {
    targets[to] = targets[from];
    hits[to] = hits[from];
    taxa[to] = taxa[from];
    if (!firsts) return;
    firsts[to] = firsts[from];
    lasts[to] = lasts[from];
  }

  DG_FN void put(u32 at, u32 target, u32 taxon, u32 count, u32 first, u32 last) const {
    targets[at] = target;
    hits[at] = count;
    taxa[at] = taxon;
    if (!firsts) return;
    firsts[at] = first;
    lasts[at] = last;
  }

  /// Candidates come by ascending targets.
  DG_FN void meet(u32 target, u32 taxon, u32 count, u32 first, u32 last) {
    if (size == most && hits[size - 1] >= count) return;
    u32 at = 0;
    while (at < size && taxa[at] != taxon) ++at;
    if (at < size && hits[at] >= count) return;
    if (at == size && size < most) ++size;
    if (at == most) --at;
    for (; at > 0 && hits[at - 1] < count; --at) move(at - 1, at);
    put(at, target, taxon, count, first, last);
  }

  DG_FN void fill() const {
    DG_ROLL
    for (u32 at = size; at < most; ++at) put(at, 0, 0, 0, 0, 0);
  }
};

/// The lowest hit that a run ending with this one may begin with.
DG_FN u64 first_in_reach(u64 hit, u32 reach) {
  return hit - (window_of(hit) < reach ? window_of(hit) : reach - 1);
}

/// Meets the candidate of each target: of all runs of windows of which the last is less than `reach` behind the
/// first, the first one with most hits. `taxa` are those of targets, 0 of those that are no candidates.
DG_FN void meet_candidates(const CountedHits& of, u64 n, u32 reach, const u32* taxa, TopList& top) {
  u64 row = 0;
  while (row < n) {
    const u32 target = target_of(of.hits[row]), taxon = taxa[target];
    u64 begin = row;
    u32 sum = 0, best = 0, first = 0, last = 0;
    for (; row < n && target_of(of.hits[row]) == target; ++row) {
      sum += of.counts[row];
      while (window_of(of.hits[row]) - window_of(of.hits[begin]) >= reach)
        sum -= of.counts[begin++];
      if (sum <= best) continue;
      best = sum;
      first = window_of(of.hits[begin]);
      last = window_of(of.hits[row]);
    }
    if (taxon != 0) top.meet(target, taxon, best, first, last);
  }
}

}  // namespace dg

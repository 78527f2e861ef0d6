/// From the hits of a read to its candidates: hits of one window are counted, and the best run of neighbouring
/// windows of each target is a candidate (MetaCache, Müller et al. 2017).
#pragma once

#include "core/atomic.cuh"
#include "core/hash.cuh"
#include "core/platform.cuh"
#include "core/tile.cuh"
#include "kmer/lane_words.cuh"

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
template <class Tile>
DG_FN u64 count_hits(Tile tile, const u64* hits, u64 n, const CountedHits& to) {
  const u64 places = n * kPlacesOfHit;
  for (u64 at = tile.lane(); at < places; at += Tile::size) {
    to.hits[at] = kNoHit;
    to.counts[at] = 0;
  }
  tile.sync();
  for (u64 row = tile.lane(); row < n; row += Tile::size) {
    const u64 hit = hits[row];
    u64 at = mulhi(hit * 0x9e3779b97f4a7c15ull ^ hit << 41, places);
    while (true) {
      u64 seen;
      if constexpr (Tile::size == 1) {
        seen = to.hits[at];
        if (seen == kNoHit) to.hits[at] = hit;
      } else {
        seen = atomic_swap_if<Order::relaxed>(to.hits + at, kNoHit, hit);
      }
      if (seen == kNoHit || seen == hit) break;
      if (++at == places) at = 0;
    }
    if constexpr (Tile::size == 1)
      ++to.counts[at];
    else
      atomic_add<Order::relaxed>(to.counts + at, 1u);
  }
  tile.sync();
  u64 distinct = 0;
  for (u64 start = 0; start < places; start += Tile::size) {
    const u64 at = start + tile.lane();
    const u64 hit = at < places ? to.hits[at] : kNoHit;
    const u32 count = at < places ? to.counts[at] : 0;
    const u32 taken = tile.ballot(hit != kNoHit);
    // Everyone has read before places are written.
    tile.sync();
    if (hit != kNoHit) {
      const u64 place = distinct + count_ones(taken & ones_below(tile.lane()));
      to.hits[place] = hit;
      to.counts[place] = count;
    }
    distinct += count_ones(taken);
  }
  tile.sync();
  return distinct;
}

/// By one lane: few rows one by one, many as a heap.
DG_FN void sort_alone(const CountedHits& of, u64 n) {
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

/// Sorts n distinct hits; by a tile, bitonically, where rows behind the last are above all others.
template <class Tile>
DG_FN void sort_hits(Tile tile, const CountedHits& of, u64 n) {
  if constexpr (Tile::size == 1) {
    sort_alone(of, n);
  } else {
    for (u64 half = 1; half < n; half *= 2) {
      // Pairs of rows from both ends of each block to its middle, then pairs at half the distance, and so on.
      for (u64 distance = half; distance > 0; distance /= 2) {
        const u64 pairs = (n + 2 * distance - 1) / (2 * distance) * distance;
        for (u64 pair = tile.lane(); pair < pairs; pair += Tile::size) {
          const u64 block = pair / distance * 2 * distance, within = pair % distance;
          const u64 low = block + within;
          const u64 high =
              block + (distance == half ? 2 * distance - 1 - within : distance + within);
          if (high < n && of.hits[low] > of.hits[high]) of.swap(low, high);
        }
        tile.sync();
      }
    }
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

/// The same by a tile, and the rest of the list is filled; there is memory for twice as many counts. The best of all
/// runs is the first candidate, that of those with another taxon the next one.
template <class Tile>
DG_FN void meet_together(Tile tile, const CountedHits& of, u64 n, u32 reach, const u32* taxa,
                         TopList& top) {
  // Counts become sums up to each hit; behind them is what the run that ends there has.
  u32* const sums = of.counts;
  u32* const scores = of.counts + n;
  u32 before = 0;
  for (u64 start = 0; start < n; start += Tile::size) {
    const u64 row = start + tile.lane();
    const u32 sum = before + inclusive_sum(tile, row < n ? sums[row] : 0);
    if (row < n) sums[row] = sum;
    before = tile.shuffle(sum, Tile::size - 1);
  }
  tile.sync();
  const auto first_of = [&](u64 row) {
    const u64 bound = first_in_reach(of.hits[row], reach);
    u64 first = 0;
    for (u64 end = row; first < end;) {
      const u64 middle = first + (end - first) / 2;
      if (of.hits[middle] < bound)
        first = middle + 1;
      else
        end = middle;
    }
    return first;
  };
  for (u64 row = tile.lane(); row < n; row += Tile::size) {
    const u64 first = first_of(row);
    const u32 sum = sums[row] - (first == 0 ? 0 : sums[first - 1]);
    scores[row] = taxa[target_of(of.hits[row])] == 0 ? 0 : sum;
  }
  for (; top.size < top.most; ++top.size) {
    u64 best = 0;  // of as many hits the run that comes first
    for (u64 row = tile.lane(); row < n; row += Tile::size) {
      const u64 rank = static_cast<u64>(scores[row]) << 32 | (0xffffffff - row);
      if (scores[row] != 0 && rank > best) best = rank;
    }
    best = highest_of(tile, best);
    if (best == 0) break;
    const u64 row = 0xffffffff - (best & 0xffffffff), last = of.hits[row];
    const u32 taken = taxa[target_of(last)];
    if (tile.lane() == 0)
      top.put(top.size, target_of(last), taken, static_cast<u32>(best >> 32),
              window_of(of.hits[first_of(row)]), window_of(last));
    for (u64 other = tile.lane(); other < n; other += Tile::size)
      if (taxa[target_of(of.hits[other])] == taken) scores[other] = 0;
  }
  if (tile.lane() == 0) top.fill();
}

/// The same of n hits in any order, not counted, of which each lane has `Count` at most: in registers, and in order, so that
/// a run has as many as it has places.
template <u32 Count, class Tile>
DG_FN void meet_in_lanes(Tile tile, const u64* hits, u32 n, u32 reach, const u32* taxa,
                         TopList& top) {
  u64 held[Count];
  u32 taxon[Count], rank[Count];
  DG_UNROLL
  for (u32 i = 0; i < Count; ++i) {
    const u32 at = i * Tile::size + tile.lane();
    held[i] = at < n ? hits[at] : kNoHit;
  }
  sort_words(tile, held);
  DG_UNROLL
  for (u32 i = 0; i < Count; ++i)
    taxon[i] = tile.lane() * Count + i < n ? taxa[target_of(held[i])] : 0;
  DG_UNROLL
  for (u32 i = 0; i < Count; ++i) {
    const u32 at = tile.lane() * Count + i;
    const u32 first = words_below(tile, held, first_in_reach(held[i], reach));
    rank[i] = taxon[i] == 0 ? 0 : (at + 1 - first) << 16 | (0xffff - at);
  }
  for (; top.size < top.most; ++top.size) {
    u32 best = 0;
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i) best = rank[i] > best ? rank[i] : best;
    best = highest_of(tile, best);
    if (best == 0) break;
    const u32 at = 0xffff - (best & 0xffff), count = best >> 16;
    const u64 last = word_at(tile, held, at);
    const u64 first = top.firsts ? word_at(tile, held, at + 1 - count) : last;
    const u32 taken = word_at(tile, taxon, at);
    if (tile.lane() == 0)
      top.put(top.size, target_of(last), taken, count, window_of(first), window_of(last));
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i)
      if (taxon[i] == taken) rank[i] = 0;
  }
  if (tile.lane() == 0) top.fill();
}

}  // namespace dg

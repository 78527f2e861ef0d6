/// Candidates of a read by the lanes of a tile: hits in order, of which a run has as many as it has places. The best of
/// all runs is the first candidate, and that of those with another taxon the next one.
#pragma once

#include "core/platform.cuh"
#include "core/tile.cuh"
#include "kmer/candidates.cuh"
#include "kmer/lane_words.cuh"

namespace dg {

/// Fills the list with candidates of n hits in any order, which the lanes have in registers, `Count` at most of each.
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
    const u32 at = fresh_lane(tile) * Count + i;
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

/// Keeps one of each of n ordered hits, and in place of its count how many hits there are up to the last one; returns
/// how many are kept.
template <class Tile>
DG_FN u64 keep_distinct(Tile tile, const CountedHits& of, u64 n) {
  u64 distinct = 0;
  for (u64 start = 0; start < n; start += Tile::size) {
    const u64 row = start + tile.lane();
    const u64 hit = row < n ? of.hits[row] : kNoHit;
    const bool is_last = row < n && (row + 1 == n || of.hits[row + 1] != hit);
    const u32 kept = tile.ballot(is_last);
    // Everyone has read before places are written.
    tile.sync();
    if (is_last) {
      const u64 place = distinct + count_ones(kept & ones_below(tile.lane()));
      of.hits[place] = hit;
      of.counts[place] = static_cast<u32>(row + 1);
    }
    distinct += count_ones(kept);
  }
  tile.sync();
  return distinct;
}

/// As `meet_in_lanes`, of hits of any number, in memory for them and for twice as many counts.
template <u32 Count, class Tile>
DG_FN void meet_in_memory(Tile tile, const u64* hits, u64 n, const CountedHits& of, u32 reach,
                          const u32* taxa, TopList& top) {
  sort_words<Count>(tile, hits, n, of.hits, kNoHit);
  n = keep_distinct(tile, of, n);
  const u32* const sums = of.counts;
  u32* const scores = of.counts + n;  // of the run that ends with each hit
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

}  // namespace dg

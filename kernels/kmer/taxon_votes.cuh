/// The taxon of a read by what its k-mers say, by Kraken 2's rule: the one with the most k-mers on its way to the
/// root, as far up as the confidence asks.
#pragma once

#include "core/hash.cuh"
#include "core/tree.cuh"
#include "kmer/lane_words.cuh"

namespace dg {

/// Taxa as numbers of a tree.
struct TaxonTree {
  Tree tree;
  const u32* places;  // where each is followed by its clade
  const u32* sizes;   // of clades

  DG_FIELDS(tree, places, sizes)

  DG_FN bool is_within(u32 taxon, u32 clade) const {
    return places[taxon] - places[clade] < sizes[clade];
  }
};

/// The distinct taxa of one read and their k-mers, in memory that has four words for each of `room` taxa. Few
/// are looked through, more are found by their hashes.
struct TaxonVotes {
  static constexpr u32 few = 16;
  static constexpr u32 none = ~0u;

  u32* taxa;
  u64 room;
  u32 size = 0;
  u32 latest = 0;

  DG_FN TaxonVotes(u32* memory, u64 most) : taxa(memory), room(most) {}

  DG_FN void add(u32 taxon, u32 kmers) {
    if (size == 0 || taxa[latest] != taxon) {
      const u32 found = find(taxon);
      latest = found == none ? put(taxon) : found;
    }
    counts()[latest] += kmers;
  }

  /// How many k-mers have the taxon itself.
  DG_FN u32 of(u32 taxon) const {
    const u32 found = find(taxon);
    return found == none ? 0 : counts()[found];
  }

  /// How many have one of a clade.
  DG_FN u32 of_clade(const TaxonTree& by, u32 clade) const {
    u32 sum = 0;
    for (u32 i = 0; i < size; ++i)
      if (by.is_within(taxa[i], clade)) sum += counts()[i];
    return sum;
  }

  /// The taxon of which, with its ancestors, most k-mers are; of several their lowest common ancestor.
  DG_FN u32 best(const TaxonTree& by) const {
    if (size == 1) return taxa[0];
    u32 most = 0, winner = 0;
    for (u32 i = 0; i < size; ++i) {
      const u32 score = score_of(by, taxa[i]);
      if (score > most) {
        most = score;
        winner = taxa[i];
      } else if (score == most) {
        winner = by.tree.lca(winner, taxa[i]);
      }
    }
    return winner;
  }

  /// The nearest taxon at or above a winner whose clade has as many k-mers as required, 0 where none has.
  /// The winner itself needs them without its clade, or with it.
  DG_FN u32 supported(const TaxonTree& by, u32 winner, u64 required) const {
    if (of(winner) >= required) return winner;
    while (winner != 0 && of_clade(by, winner) < required) winner = by.tree.parents[winner];
    return winner;
  }

 private:
  DG_FN u32 score_of(const TaxonTree& by, u32 taxon) const {
    u32 score = 0;
    if (size <= few) {
      for (u32 i = 0; i < size; ++i)
        if (by.is_within(taxon, taxa[i])) score += counts()[i];
    } else {
      for (u32 above = taxon; above != 0; above = by.tree.parents[above]) score += of(above);
    }
    return score;
  }

  DG_FN u32* counts() const { return taxa + room; }
  DG_FN u32* slots() const { return taxa + 2 * room; }
  DG_FN u64 slot_of(u32 taxon) const { return mulhi(mix(taxon), 2 * room); }
  DG_FN u64 slot_after(u64 slot) const { return slot + 1 == 2 * room ? 0 : slot + 1; }

  DG_FN u32 find(u32 taxon) const {
    if (size <= few) {
      for (u32 i = size; i-- > 0;)
        if (taxa[i] == taxon) return i;
      return none;
    }
    for (u64 slot = slot_of(taxon); slots()[slot] != none; slot = slot_after(slot))
      if (taxa[slots()[slot]] == taxon) return slots()[slot];
    return none;
  }

  DG_FN u32 put(u32 taxon) {
    const u32 index = size++;
    taxa[index] = taxon;
    counts()[index] = 0;
    if (index == few) {
      for (u64 slot = 0; slot < 2 * room; ++slot) slots()[slot] = none;
      for (u32 each = 0; each < few; ++each) note(each);
    }
    if (index >= few) note(index);
    return index;
  }

  DG_FN void note(u32 index) {
    u64 slot = slot_of(taxa[index]);
    while (slots()[slot] != none) slot = slot_after(slot);
    slots()[slot] = index;
  }
};

/// The same among the lanes of a tile, each of which has one of the taxa: at most as many as there are lanes.
template <class Tile>
struct LaneVotes {
  Tile tile;
  u32 taxon = 0;  // this lane's, 0 behind the last one
  u32 count = 0;
  u32 place = 0;
  u32 clade = 0;
  u32 size = 0;

  /// Adds what each lane brings, no taxon where that is 0; returns whether there was room for all of them.
  DG_FN bool add(const TaxonTree& by, u32 met, u32 kmers) {
    for (u32 left = tile.ballot(met != 0); left != 0;) {
      const u32 next = tile.shuffle(met, lowest_one(left));
      const bool is_next = met == next;
      const u32 more = sum(is_next ? kmers : 0);
      left &= ~tile.ballot(is_next);
      const bool is_own = taxon == next;
      if (tile.any(is_own)) {
        if (is_own) count += more;
        continue;
      }
      if (size == Tile::size) return false;
      if (tile.lane() == size) {
        taxon = next;
        count = more;
        place = by.places[next];
        clade = by.sizes[next];
      }
      ++size;
    }
    return true;
  }

  /// How many k-mers have one of a clade.
  DG_FN u32 of_clade(const TaxonTree& by, u32 above) const {
    return sum(taxon != 0 && place - by.places[above] < by.sizes[above] ? count : 0);
  }

  DG_FN u32 best(const TaxonTree& by) const {
    u32 score = 0;
    for (u32 i = 0; i < size; ++i) {
      const u32 within = tile.shuffle(clade, i), begin = tile.shuffle(place, i);
      const u32 more = tile.shuffle(count, i);
      if (place - begin < within) score += more;
    }
    if (taxon == 0) score = 0;
    const u32 most = highest_of(tile, score);
    u32 winner = 0;
    for (u32 left = tile.ballot(taxon != 0 && score == most); left != 0; left &= left - 1) {
      const u32 next = tile.shuffle(taxon, lowest_one(left));
      winner = winner == 0 ? next : by.tree.lca(winner, next);
    }
    return winner;
  }

  DG_FN u32 supported(const TaxonTree& by, u32 winner, u64 required) const {
    if (sum(taxon == winner ? count : 0) >= required) return winner;
    while (winner != 0 && of_clade(by, winner) < required) winner = by.tree.parents[winner];
    return winner;
  }

  /// Of all lanes.
  DG_FN u32 sum(u32 term) const {
    DG_UNROLL
    for (u32 distance = 1; distance < Tile::size; distance *= 2)
      term += tile.shuffle(term, tile.lane() ^ distance);
    return term;
  }
};

}  // namespace dg

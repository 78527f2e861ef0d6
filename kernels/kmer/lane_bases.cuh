/// Bases in the registers of a tile's lanes, each of which has the k-mers that begin with its letters.
#pragma once

#include "core/platform.cuh"
#include "core/tile.cuh"
#include "kmer/bases.cuh"
#include "kmer/lane_words.cuh"

namespace dg {

/// `Count` letters of each lane, and those behind that are in a `Word` with them: 16 or 32. A k-mer may not reach
/// beyond the last lane's letters, nor be longer than a word.
template <u32 Count, class Word>
struct LaneBases {
  static constexpr u32 bits = 8 * sizeof(Word);

  u32 first;  // place of the lane's first letter
  // The letters from that one on, the first one highest, and their complements, the first one lowest: a word, and
  // `Count` letters behind it.
  Word own = 0, own_reverse;
  u32 more, more_reverse;
  u32 ends = 0;    // bits of the lane's letters that are no bases
  u32 begins = 0;  // of those that no k-mer has behind its first one
  u32 behind = 0;  // place of the next lane's letter that is either, or far away

  /// Of n letters, one at least, or as many of them as there are places: `base_at(place)` is a base or `kNoBase`.
  template <class Tile, class BaseAt>
  DG_FN LaneBases(Tile tile, u64 n, const BaseAt& base_at) : first(tile.lane() * Count) {
    const u32 letters = n < Count * Tile::size ? static_cast<u32>(n) : Count * Tile::size;
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i) {
      // No branch, so that all letters are read at once: the last one stands for those behind it.
      const bool is_there = first + i < letters;
      const u32 base = base_at(is_there ? first + i : letters - 1);
      ends |= static_cast<u32>(!is_there || base == kNoBase) << i;
      own = own << 2 | (base & 3);
    }
    DG_UNROLL
    for (u32 bases = Count; 2 * bases < bits; bases *= 2)
      own = own << 2 * bases | tile.shuffle(own, tile.lane() + bases / Count);
    own_reverse = reversed_bases(static_cast<Word>(~own));
    more = tile.shuffle(static_cast<u32>(own) & ~0u >> (32 - 2 * Count), tile.lane() + 1);
    more_reverse =
        tile.shuffle(static_cast<u32>(own_reverse >> (bits - 2 * Count)), tile.lane() + 1);
  }

  /// Before k-mers are asked for.
  template <class Tile>
  DG_FN void look_behind(Tile tile) {
    behind = next_place<Count>(tile, ends | begins);
  }

  /// Bits of the letters that k-mers begin with, of the first n ones of all lanes; with `early`, also of those that are
  /// no bases, behind which there are k - 1 of them.
  DG_FN u32 kmers(u32 k, u32 n, bool early = false) const {
    u32 found = 0, left = behind - first - Count;
    DG_UNROLL
    for (u32 i = Count; i-- > 0;) {
      ++left;
      if (i + 1 < Count && begins >> (i + 1) & 1) left = 1;
      const bool is_base = !(ends >> i & 1);
      found |= static_cast<u32>(left >= k && (early || is_base)) << i;
      if (!is_base) left = 0;
    }
    if (n < first + Count) found &= n <= first ? 0 : ones_below(n - first);
    return found;
  }

  /// The lower code of the k letters from the lane's i-th one on, and of their reverse complement.
  DG_FN Word canonical(u32 i, u32 k) const {
    Word mer = own, reverse = own_reverse;
    if (i != 0) {
      mer = mer << 2 * i | more >> 2 * (Count - i);
      reverse = reverse >> 2 * i | static_cast<Word>(more_reverse) << (bits - 2 * i);
    }
    const Word forward = mer >> (bits - 2 * k);
    reverse &= ~Word{0} >> (bits - 2 * k);
    return forward < reverse ? forward : reverse;
  }
};

}  // namespace dg

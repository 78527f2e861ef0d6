/// Words in the registers of a tile's lanes, `Count` of each: word i of a lane has the place `lane * Count + i`.
#pragma once

#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

/// Puts them in order, bitonically: of each block of places, both ends are compared on their way to the middle, and
/// then places at half the distance, and so on.
template <u32 Count, class Tile, class Word>
DG_FN void sort_words(Tile tile, Word (&words)[Count]) {
  const auto order = [&](u32 low, u32 high) {
    const bool turns = words[high] < words[low];
    const Word lower = turns ? words[high] : words[low];
    words[high] = turns ? words[low] : words[high];
    words[low] = lower;
  };
  DG_UNROLL
  for (u32 block = 2; block <= Count; block *= 2) {
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i)
      if ((i ^ (block - 1)) > i) order(i, i ^ (block - 1));
    DG_UNROLL
    for (u32 distance = block / 4; distance > 0; distance /= 2) {
      DG_UNROLL
      for (u32 i = 0; i < Count; ++i)
        if ((i & distance) == 0) order(i, i | distance);
    }
  }
  u32 lane = tile.lane();
  // Before loops the compiler would keep what every step takes of it in registers.
  compute_afresh(lane);
  // Words of another lane, of which this one keeps the lower, or the higher ones.
  const auto meet = [&](u32 other, bool is_turned, bool keeps_low) {
    Word theirs[Count];
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i)
      theirs[i] = tile.shuffle(words[is_turned ? Count - 1 - i : i], other);
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i)
      words[i] = (theirs[i] < words[i]) == keeps_low ? theirs[i] : words[i];
  };
  DG_UNROLL
  for (u32 lanes = 2; lanes <= Tile::size; lanes *= 2) {
    meet(lane ^ (lanes - 1), true, (lane & lanes / 2) == 0);
    DG_UNROLL
    for (u32 distance = lanes / 4; distance > 0; distance /= 2)
      meet(lane ^ distance, false, (lane & distance) == 0);
    DG_UNROLL
    for (u32 distance = Count / 2; distance > 0; distance /= 2) {
      DG_UNROLL
      for (u32 i = 0; i < Count; ++i)
        if ((i & distance) == 0) order(i, i | distance);
    }
  }
}

/// How many ordered words are below `bound`, of which there are fewer than all.
template <u32 Count, class Tile, class Word>
DG_FN u32 words_below(Tile tile, const Word (&words)[Count], Word bound) {
  u32 lanes = 0;
  DG_UNROLL
  for (u32 step = Tile::size / 2; step > 0; step /= 2)
    if (tile.shuffle(words[Count - 1], lanes + step - 1) < bound) lanes += step;
  u32 below = lanes * Count;
  DG_UNROLL
  for (u32 i = 0; i + 1 < Count; ++i) below += tile.shuffle(words[i], lanes) < bound;
  return below;
}

/// The word at a place, which may differ by lane.
template <u32 Count, class Tile, class Word>
DG_FN Word word_at(Tile tile, const Word (&words)[Count], u32 place) {
  Word found = tile.shuffle(words[0], place / Count);
  DG_UNROLL
  for (u32 i = 1; i < Count; ++i) {
    const Word other = tile.shuffle(words[i], place / Count);
    if (place % Count == i) found = other;
  }
  return found;
}

/// Of places of which each lane has a bit: the first one with a bit behind the lane's own, or one far away.
template <u32 Count, class Tile>
DG_FN u32 next_place(Tile tile, u32 bits) {
  const u32 above = tile.ballot(bits != 0) & ~(ones_below(tile.lane()) << 1 | 1);
  const u32 lane = above == 0 ? 0 : lowest_one(above);
  const u32 theirs = tile.shuffle(bits, lane);
  return above == 0 ? ~0u : lane * Count + lowest_one(theirs);
}

/// Of all lanes.
template <class Tile, class Word>
DG_FN Word highest_of(Tile tile, Word word) {
  DG_UNROLL
  for (u32 distance = 1; distance < Tile::size; distance *= 2) {
    const Word other = tile.shuffle(word, tile.lane() ^ distance);
    word = other > word ? other : word;
  }
  return word;
}

}  // namespace dg

/// Words in the registers of a tile's lanes, `Count` of each: word i of a lane has the place `lane * Count + i`.
#pragma once

#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

template <class Word>
DG_FN void order_two(Word& low, Word& high) {
  const bool turns = high < low;
  const Word lower = turns ? high : low;
  high = turns ? low : high;
  low = lower;
}

/// With the words of another lane, these from the last one to the first where `is_turned`; the lower, or the higher
/// ones stay.
template <u32 Count, class Tile, class Word>
DG_FN void order_lanes(Tile tile, Word (&words)[Count], u32 other, bool is_turned, bool is_low) {
  Word theirs[Count];
  DG_UNROLL
  for (u32 i = 0; i < Count; ++i)
    theirs[i] = tile.shuffle(words[is_turned ? Count - 1 - i : i], other);
  DG_UNROLL
  for (u32 i = 0; i < Count; ++i)
    words[i] = (theirs[i] < words[i]) == is_low ? theirs[i] : words[i];
}

/// Puts the words of so many lanes in order that went up and then down, or the other way: places at half the distance
/// are compared, then at a quarter, and so on.
template <u32 Count, class Tile, class Word>
DG_FN void merge_words(Tile tile, Word (&words)[Count], u32 lane, u32 lanes) {
  DG_UNROLL
  for (u32 distance = lanes / 2; distance > 0; distance /= 2)
    order_lanes(tile, words, lane ^ distance, false, (lane & distance) == 0);
  DG_UNROLL
  for (u32 distance = Count / 2; distance > 0; distance /= 2) {
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i)
      if ((i & distance) == 0) order_two(words[i], words[i | distance]);
  }
}

/// The number of a lane; from it the compiler would keep in registers what every step takes, if loops are around it.
template <class Tile>
DG_FN u32 fresh_lane(Tile tile) {
  u32 lane = tile.lane();
  compute_afresh(lane);
  return lane;
}

/// Puts all of them in order, bitonically: of two blocks in order, places are compared from both ends to the middle,
/// and then each half is merged.
template <u32 Count, class Tile, class Word>
DG_FN void sort_words(Tile tile, Word (&words)[Count]) {
  DG_UNROLL
  for (u32 block = 2; block <= Count; block *= 2) {
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i)
      if ((i ^ (block - 1)) > i) order_two(words[i], words[i ^ (block - 1)]);
    DG_UNROLL
    for (u32 distance = block / 4; distance > 0; distance /= 2) {
      DG_UNROLL
      for (u32 i = 0; i < Count; ++i)
        if ((i & distance) == 0) order_two(words[i], words[i | distance]);
    }
  }
  const u32 lane = fresh_lane(tile);
  DG_UNROLL
  for (u32 lanes = 2; lanes <= Tile::size; lanes *= 2) {
    order_lanes(tile, words, lane ^ (lanes - 1), true, (lane & lanes / 2) == 0);
    merge_words(tile, words, lane, lanes / 2);
  }
}

/// Puts n words of `from` in order in other memory, `Count` of each lane in registers at once; `none` is above all.
template <u32 Count, class Tile, class Word>
DG_FN void sort_words(Tile tile, const Word* from, u64 n, Word* words, Word none) {
  constexpr u64 piece = Count * Tile::size;
  const auto for_each_piece = [&](const Word* source, const auto& order) {
    DG_ROLL
    for (u64 start = tile.lane() * Count; start < n + tile.lane() * Count; start += piece) {
      Word held[Count];
      DG_UNROLL
      for (u32 i = 0; i < Count; ++i) held[i] = start + i < n ? source[start + i] : none;
      order(held);
      DG_UNROLL
      for (u32 i = 0; i < Count; ++i)
        if (start + i < n) words[start + i] = held[i];
    }
    tile.sync();
  };
  for_each_piece(from, [&](Word(&held)[Count]) { sort_words(tile, held); });
  DG_ROLL
  for (u64 half = piece; half < n; half *= 2) {
    DG_ROLL
    for (u64 distance = half; distance >= piece; distance /= 2) {
      const u64 pairs = ((n - 1) & ~(2 * distance - 1)) / 2 + distance;
      for (u64 pair = tile.lane(); pair < pairs; pair += Tile::size) {
        const u64 within = pair & (distance - 1), block = (pair - within) * 2;
        const u64 low = block + within;
        const u64 high = block + (distance == half ? 2 * distance - 1 - within : distance + within);
        if (high >= n) continue;
        const Word lower = words[low], higher = words[high];
        if (lower <= higher) continue;
        words[low] = higher;
        words[high] = lower;
      }
      tile.sync();
    }
    for_each_piece(
        words, [&](Word(&held)[Count]) { merge_words(tile, held, fresh_lane(tile), Tile::size); });
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

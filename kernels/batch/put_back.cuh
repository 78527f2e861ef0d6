/// From the order of a partition back to that of the batch. A row's place is ranked once more from its
/// key, as the scatter did (part_step.cuh), so that nobody has to keep it; and since neighbours of the
/// batch stand in few runs, all is read and written in whole lines.
#pragma once

#include "batch/partition.cuh"

namespace dg {

/// Shared memory of a block; a block of one lane goes row by row.
template <class Block>
struct PartRanks {
  static constexpr u32 parts = kPassParts<Block, Within::order>;
  static constexpr bool in_order = true;

  u64 firsts[parts];                            // where the segment's rows of each part begin
  u32 behind[Block::threads == 1 ? 1 : parts];  // of those the ones of earlier steps
  u32 counts[Block::threads == 1 ? 1 : Block::tiles][Block::threads == 1 ? 1 : parts];
};

/// What stands in the order of the partition, and where it goes; either column may be null.
template <class Word>
struct BackColumns {
  const Word* words;
  const u8* flags;
  Word* words_to;
  u8* flags_to;
};

/// Rows that a thread brings to a step.
inline constexpr u32 kBackItems = 8;

/// The rows of a step, which begin at `first`.
template <u32 items, class Block, class Rows, class Digit, class Key, class Word>
DG_FN void put_back_step(Block block, PartRanks<Block>& ranks, Rows rows, const Digit& digit,
                         const Key* keys, const BackColumns<Word>& columns, u64 first) {
  u32 places[items];
  rank_rows(block, ranks, rows, digit, keys + first, places);
  block.sync();
  for (u32 part = block.thread(); part < ranks.parts; part += Block::threads) {
    u32 place = ranks.behind[part];
    DG_UNROLL
    for (u32 tile = 0; tile < Block::tiles; ++tile) {
      const u32 count = ranks.counts[tile][part];
      ranks.counts[tile][part] = place;
      place += count;
    }
    ranks.behind[part] = place;
  }
  block.sync();
  const auto place_of = [&](u32 item) {
    const u32 part = places[item] >> 16;
    return ranks.firsts[part] + ranks.counts[block.tile_index()][part] + (places[item] & 0xffff);
  };
  // All are read before one is written, so that their lines come at once.
  const auto move = [&](const auto* from, auto* to, auto none) {
    decltype(none) moved[items];
    DG_UNROLL
    for (u32 i = 0; i < items; ++i)
      moved[i] = rows.has(row_of_item<items>(block, i)) ? from[place_of(i)] : none;
    DG_UNROLL
    for (u32 i = 0; i < items; ++i) {
      const u32 row = row_of_item<items>(block, i);
      if (rows.has(row)) to[first + row] = moved[i];
    }
  };
  if (columns.words) move(columns.words, columns.words_to, Word{0});
  if (columns.flags) move(columns.flags, columns.flags_to, u8{0});
  // Before the tiles' counts are cleared.
  block.sync();
}

/// Brings back rows [first, last) of the batch; `firsts` were set.
template <class Block, class Key, class Word>
DG_FN void put_back_parts(Block block, PartRanks<Block>& ranks, const Digit& digit, const Key* keys,
                          const BackColumns<Word>& columns, u64 first, u64 last) {
  if constexpr (Block::threads == 1) {
    // Copies, which the compiler knows to stay as they are.
    const Digit of = digit;
    const BackColumns<Word> moved = columns;
    for (u64 row = first; row < last; ++row) {
      const u64 place = ranks.firsts[of.of(keys[row])]++;
      if (moved.words) moved.words_to[row] = moved.words[place];
      if (moved.flags) moved.flags_to[row] = moved.flags[place];
    }
  } else {
    for (u32 part = block.thread(); part < ranks.parts; part += Block::threads)
      ranks.behind[part] = 0;
    constexpr u32 step = kBackItems * Block::threads;
    u64 start = first;
    for (; start + step <= last; start += step)
      put_back_step<kBackItems>(block, ranks, AllRows{}, digit, keys, columns, start);
    constexpr u32 few = 2;
    for (; start < last; start += few * Block::threads)
      put_back_step<few>(block, ranks, FirstRows{last - start}, digit, keys, columns, start);
  }
}

}  // namespace dg

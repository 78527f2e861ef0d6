/// Partition of a batch into few parts, by tiles: a lane has the cursor of one part, so tiles need no
/// word from each other, and nothing but registers counts rows.
///
/// Rows are cut into segments, one for each tile. The count notes each row's part in a byte; the
/// exclusive sums of the counts, by part first and segment second, are the places where each segment
/// writes. What moves rows, and what brings answers back to them, reads those bytes instead of the
/// keys, whose hash would cost more than the byte. Rows of a part stay in order.
#pragma once

#include "batch/partition.cuh"
#include "core/block.cuh"
#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

/// Parts that a tile deals out to. As in dgpuhash/backend/constants.py.
template <class Tile>
inline constexpr u32 kDealParts = Tile::size == 1 ? 256 : Tile::size;

/// Rows that a lane brings to a step.
inline constexpr u32 kDealItems = 8;

/// How many bits tell so many parts apart; each costs a vote of each row.
DG_FN u32 part_bits(u64 parts) {
  return parts < 2 ? 0 : highest_one(static_cast<u32>(parts - 1)) + 1;
}

/// The rows of a step, of which a lane has every `Tile::size`th.
template <class Tile>
struct DealRows {
  u32 lane;
  u32 total;
  u64 own;  // the lane's first

  DG_FN DealRows(Tile tile, u64 start, u64 last)
      : lane(tile.lane()),
        total(last - start < kDealItems * Tile::size ? static_cast<u32>(last - start)
                                                     : kDealItems * Tile::size),
        own(start + lane) {}

  DG_FN static constexpr u32 nth(u32 item) { return item * Tile::size; }
  DG_FN bool has(u32 item) const { return nth(item) + lane < total; }

  template <class Word, class Loaded>
  DG_FN void load(const Word* column, Loaded (&words)[kDealItems]) const {
    const Word* from = column + own;
    DG_UNROLL
    for (u32 i = 0; i < kDealItems; ++i) words[i] = has(i) ? from[nth(i)] : Loaded{0};
  }

  template <class Word, class Stored>
  DG_FN void store(Word* column, const Stored (&words)[kDealItems]) const {
    Word* to = column + own;
    DG_UNROLL
    for (u32 i = 0; i < kDealItems; ++i)
      if (has(i)) to[nth(i)] = static_cast<Word>(words[i]);
  }
};

/// For each row of a lane the lanes that have a row of the same part, and those that have one of the part of
/// this lane's number.
template <class Tile>
struct PartLanes {
  u32 alike[kDealItems];
  u32 numbered[kDealItems];

  DG_FN PartLanes(Tile tile, const DealRows<Tile>& rows, const u32 (&parts)[kDealItems], u32 bits) {
    DG_UNROLL
    for (u32 i = 0; i < kDealItems; ++i) alike[i] = numbered[i] = tile.ballot(rows.has(i));
    DG_ROLL
    for (u32 bit = 0; bit < bits; ++bit) {
      const bool mine = rows.lane >> bit & 1;
      DG_UNROLL
      for (u32 i = 0; i < kDealItems; ++i) {
        const bool claim = parts[i] >> bit & 1;
        const u32 set = tile.ballot(claim);
        alike[i] &= claim ? set : ~set;
        numbered[i] &= mine ? set : ~set;
      }
    }
  }
};

/// Counts rows [first, last) by part, of which `parts_of` gets each row's: the count of part p stands
/// `stride` * p after `counts`.
template <class Tile, class Key>
DG_FN void count_dealt(Tile tile, const Digit& digit, const Key* keys, u8* parts_of, u64 parts,
                       u64 first, u64 last, u64* counts, u64 stride) {
  if constexpr (Tile::size == 1) {
    // A copy, which the compiler knows to stay as it is.
    const Digit of = digit;
    u64 counted[kDealParts<Tile>] = {};
    for (u64 row = first; row < last; ++row) {
      const u32 part = of.of(keys[row]);
      parts_of[row] = static_cast<u8>(part);
      ++counted[part];
    }
    for (u64 part = 0; part < parts; ++part) counts[part * stride] = counted[part];
  } else {
    const u32 bits = part_bits(parts);
    u64 count = 0;
    DG_ROLL
    for (u64 start = first; start < last; start += kDealItems * Tile::size) {
      const DealRows<Tile> rows{tile, start, last};
      Key loaded[kDealItems];
      rows.load(keys, loaded);
      u32 part[kDealItems];
      digit.of(loaded, part);
      rows.store(parts_of, part);
      const PartLanes<Tile> lanes{tile, rows, part, bits};
      DG_UNROLL
      for (u32 i = 0; i < kDealItems; ++i) count += count_ones(lanes.numbered[i]);
    }
    if (tile.lane() < parts) counts[tile.lane() * stride] = count;
  }
}

/// Shared memory of the block that sums counts up.
template <class Block>
struct DealSums {
  u64 scratch[Block::tiles];
};

/// Makes the counts of all parts and segments places, and tells where parts begin and the last one ends.
template <class Block>
DG_FN void place_dealt(Block block, DealSums<Block>& sums, u64* places, u64* starts, u64 parts,
                       u64 segments) {
  const u64 number = parts * segments, own = (number + Block::threads - 1) / Block::threads;
  const u64 begin = block.thread() * own, end = begin + own;
  const u64 first = begin < number ? begin : number, last = end < number ? end : number;
  u64 total = 0;
  for (u64 at = first; at < last; ++at) total += places[at];
  u64 place = exclusive_sum(block, sums.scratch, total);
  for (u64 at = first; at < last; ++at) {
    const u64 count = places[at];
    places[at] = place;
    place += count;
  }
  if (block.thread() == Block::threads - 1) places[number] = place;
  block.sync();
  for (u64 part = block.thread(); part <= parts; part += Block::threads)
    starts[part] = places[part * segments];
}

/// What a tile moves, in the order of parts.
template <class Word, u32 lanes>
struct DealStage {
  Word words[kDealItems * lanes];
  u8 parts[kDealItems * lanes];
};

/// Shared memory of a block; a block of one lane goes row by row.
template <class Block, class Word>
struct DealStages {
  DealStage<Word, Block::Lanes::size> of_tile[Block::tiles];
};
template <class Block, class Word>
  requires(Block::threads == 1)
struct DealStages<Block, Word> {};

template <class Word>
struct DealStagesOf {
  template <class Block>
  using In = DealStages<Block, Word>;
};

/// Brings a column into the order of parts. It is loaded as late as this, and half by half: with the lanes of
/// all rows in registers too it would spill.
template <class Tile, class Word>
DG_FN void put_dealt(Tile tile, const DealRows<Tile>& rows, const u32 (&places)[kDealItems],
                     const Word* column, Word* staged) {
  constexpr u32 half = kDealItems / 2;
  const Word* from = column + rows.own;
  DG_UNROLL
  for (u32 first = 0; first < kDealItems; first += half) {
    Word words[half];
    DG_UNROLL
    for (u32 i = 0; i < half; ++i)
      words[i] = rows.has(first + i) ? from[rows.nth(first + i)] : Word{0};
    DG_UNROLL
    for (u32 i = 0; i < half; ++i)
      if (rows.has(first + i)) staged[places[first + i]] = words[i];
  }
  tile.sync();
}

/// Writes staged words; those of part p go as far on as lane p's `shift` says.
template <class Tile, class Word>
DG_FN void write_dealt(Tile tile, const DealRows<Tile>& rows, const u8* parts, u64 shift,
                       const Word* staged, Word* to) {
  DG_UNROLL_BY_4
  for (u32 i = 0; i < kDealItems; ++i) {
    const u32 place = DealRows<Tile>::nth(i) + rows.lane;
    const u32 part = rows.has(i) ? parts[place] : 0;
    const u64 target = tile.shuffle(shift, part) + place;
    if (rows.has(i)) to[target] = staged[place];
  }
}

/// Moves rows [first, last), whose parts were noted; those of part p go to `places[p * stride]` and on.
template <class Block, class Stages, class Word>
DG_FN void move_dealt(Block block, [[maybe_unused]] Stages& stages, const Word* words, Word* to,
                      const u8* parts_of, u64 parts, u64 first, u64 last, const u64* places,
                      u64 stride) {
  using Lanes = typename Block::Lanes;
  if constexpr (Block::threads == 1) {
    u64 next[kDealParts<Lanes>];
    for (u64 part = 0; part < parts; ++part) next[part] = places[part * stride];
    for (u64 row = first; row < last; ++row) to[next[parts_of[row]]++] = words[row];
  } else {
    const auto tile = block.tile();
    auto& stage = stages.of_tile[block.tile_index()];
    const u32 lane = tile.lane(), bits = part_bits(parts);
    u64 next = lane < parts ? places[lane * stride] : 0;
    DG_ROLL
    for (u64 start = first; start < last; start += kDealItems * Lanes::size) {
      const DealRows<Lanes> rows{tile, start, last};
      // A row's part, then above 8 bits its rank in it, then its place among the staged rows.
      u32 of[kDealItems];
      rows.load(parts_of, of);
      const PartLanes<Lanes> lanes{tile, rows, of, bits};
      u32 count = 0;
      DG_UNROLL
      for (u32 i = 0; i < kDealItems; ++i) {
        const u32 before = tile.shuffle(count, of[i]);
        of[i] |= (before + count_ones(lanes.alike[i] & ones_below(lane))) << 8;
        count += count_ones(lanes.numbered[i]);
      }
      u32 begin = count;
      DG_UNROLL
      for (u32 distance = 1; distance < Lanes::size; distance *= 2) {
        const u32 below = tile.shuffle(begin, lane - distance);
        if (lane >= distance) begin += below;
      }
      begin -= count;
      // The rows of the step before are written.
      tile.sync();
      DG_UNROLL
      for (u32 i = 0; i < kDealItems; ++i) {
        const u32 part = of[i] & 255;
        of[i] = tile.shuffle(begin, part) + (of[i] >> 8);
        if (rows.has(i)) stage.parts[of[i]] = static_cast<u8>(part);
      }
      const u64 shift = next - begin;
      next += count;
      put_dealt(tile, rows, of, words, stage.words);
      write_dealt(tile, rows, stage.parts, shift, stage.words, to);
    }
  }
}

/// What stands in the order of parts, and where it goes; either column may be null.
template <class Word>
struct BackColumns {
  const Word* words;
  const u8* flags;
  Word* words_to;
  u8* flags_to;
};

/// Of each half all are read before one is written, so that their lines come at once.
template <class Tile, class Word>
DG_FN void bring_words(const DealRows<Tile>& rows, const u64 (&places)[kDealItems],
                       const Word* from, Word* to) {
  constexpr u32 half = kDealItems / 2;
  Word* own = to + rows.own;
  DG_UNROLL
  for (u32 first = 0; first < kDealItems; first += half) {
    Word words[half];
    DG_UNROLL
    for (u32 i = 0; i < half; ++i)
      words[i] = rows.has(first + i) ? from[places[first + i]] : Word{0};
    DG_UNROLL
    for (u32 i = 0; i < half; ++i)
      if (rows.has(first + i)) own[rows.nth(first + i)] = words[i];
  }
}

/// Brings back rows [first, last); those of part p stand from `places[p * stride]` on, and `pads[p]` behind it.
template <class Tile, class Word>
DG_FN void bring_back(Tile tile, const BackColumns<Word>& columns, const u8* parts_of, u64 parts,
                      u64 first, u64 last, const u64* places, u64 stride, const u64* pads) {
  if constexpr (Tile::size == 1) {
    const BackColumns<Word> moved = columns;
    u64 next[kDealParts<Tile>];
    for (u64 part = 0; part < parts; ++part)
      next[part] = places[part * stride] + (pads ? pads[part] : 0);
    for (u64 row = first; row < last; ++row) {
      const u64 place = next[parts_of[row]]++;
      if (moved.words) moved.words_to[row] = moved.words[place];
      if (moved.flags) moved.flags_to[row] = moved.flags[place];
    }
  } else {
    const u32 lane = tile.lane(), bits = part_bits(parts);
    u64 next = lane < parts ? places[lane * stride] + (pads ? pads[lane] : 0) : 0;
    DG_ROLL
    for (u64 start = first; start < last; start += kDealItems * Tile::size) {
      const DealRows<Tile> rows{tile, start, last};
      u32 part[kDealItems];
      rows.load(parts_of, part);
      const PartLanes<Tile> lanes{tile, rows, part, bits};
      u64 place[kDealItems];
      DG_UNROLL
      for (u32 i = 0; i < kDealItems; ++i) {
        place[i] = tile.shuffle(next, part[i]) + count_ones(lanes.alike[i] & ones_below(lane));
        next += count_ones(lanes.numbered[i]);
      }
      if (columns.words) bring_words(rows, place, columns.words, columns.words_to);
      if (columns.flags) bring_words(rows, place, columns.flags, columns.flags_to);
    }
  }
}

}  // namespace dg

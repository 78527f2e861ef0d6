/// Where the rows of a partition's step go: their ranks in their parts, and places by these.
#pragma once

#include "batch/partition_step.cuh"
#include "core/block.cuh"
#include "core/block_atomic.cuh"

namespace dg {

/// Which rows of a step there are: all, known when the kernel is compiled, or the first `rows`.
struct AllRows {
  DG_FN static constexpr bool has(u32) { return true; }
  template <class Tile>
  DG_FN static u32 among(Tile, u32 lanes, bool) {
    return lanes;
  }
};
struct FirstRows {
  u64 rows;
  DG_FN bool has(u32 row) const { return row < rows; }
  template <class Tile>
  DG_FN static u32 among(Tile tile, u32 lanes, bool there) {
    return tile.ballot(there) & lanes;
  }
};

/// The row of a thread's item: a tile has `items` times as many rows as lanes, side by side.
template <u32 items, class Block>
DG_FN u32 row_of_item(Block block, u32 item) {
  return (block.tile_index() * items + item) * Block::Lanes::size + block.tile().lane();
}

/// A row's word, or zero where there is no such row.
template <u32 items, class Block, class Rows, class Word>
DG_FN Word load_item(Block block, Rows rows, const Word* column, u32 item) {
  const u32 row = row_of_item<items>(block, item);
  return rows.has(row) ? column[row] : Word{0};
}

template <u32 items, class Block, class Rows, class Word>
DG_FN void load_items(Block block, Rows rows, const Word* column, Word (&words)[items]) {
  DG_UNROLL
  for (u32 i = 0; i < items; ++i) words[i] = load_item<items>(block, rows, column, i);
}

/// Where a block's threads, or a tile of them, count rows.
template <class Step, class Block>
DG_FN auto& counts_of(Block block, Step& step) {
  return step.counts[Step::in_order ? block.tile_index() : 0];
}

/// Counts the rows of a step by part, and by tile where they stay in order; `ranks` get each row's part
/// and its rank there.
template <u32 items, class Step, class Block, class Rows, class Digit, class Key>
DG_FN void rank_rows(Block block, Step& step, Rows rows, const Digit& digit, const Key* keys,
                     u32 (&ranks)[items]) {
  // With all of a step in registers it would spill.
  constexpr u32 ahead = items < 8 ? items : 8;
  Key loaded[ahead];
  DG_UNROLL
  for (u32 i = 0; i < ahead; ++i) loaded[i] = load_item<items>(block, rows, keys, i);
  const auto tile = block.tile();
  auto& counts = counts_of(block, step);
  if constexpr (Step::in_order) {
    for (u32 part = tile.lane(); part < Step::parts; part += tile.size) counts[part] = 0;
    tile.sync();
  } else {
    for (u32 part = block.thread(); part < Step::parts; part += Block::threads) counts[part] = 0;
    block.sync();
  }
  DG_UNROLL
  for (u32 i = 0; i < items; ++i) {
    const bool there = rows.has(row_of_item<items>(block, i));
    const u32 part = there ? digit.of(loaded[i % ahead]) : 0;
    if (i + ahead < items) loaded[i % ahead] = load_item<items>(block, rows, keys, i + ahead);
    ranks[i] = part << 16;
    if constexpr (Step::in_order) {
      const u32 peers = Rows::among(tile, tile.template match_low<8>(part), there);
      const u32 below = count_ones(peers & ones_below(tile.lane()));
      const u32 before = counts[part];
      // All lanes have read before one writes, and it has written before the next item is read.
      tile.sync();
      if (there && below == 0) counts[part] = before + count_ones(peers);
      tile.sync();
      ranks[i] |= before + below;
    } else if (there) {
      ranks[i] |= block_fetch_add(&counts[part], 1);
    }
    if constexpr (items > 8) compute_afresh(ranks[i]);
  }
}

/// Granules of a part that one thread places; beyond, a tile does.
inline constexpr u32 kFewGranules = 16;

/// From the counts to places: where parts begin, and the counted rows in them. A part stages the
/// granules that it fills; the other rows are held.
template <class Step, class Block>
DG_FN void place_parts(Block block, Step& step, u64 start) {
  constexpr u32 parts = Step::parts, own = (parts + Block::threads - 1) / Block::threads;
  constexpr u32 granule = Step::granule;
  static_assert(parts % own == 0);
  // This thread's parts, side by side.
  const u32 first = block.thread() * own;
  u32 counts[own], total = 0;
  DG_UNROLL
  for (u32 i = 0; i < own; ++i) {
    const u32 part = first + i;
    counts[i] = 0;
    if (part >= parts) continue;
    counts[i] = step.waiting[part];
    DG_UNROLL
    for (u32 tile = 0; tile < Step::counting; ++tile) counts[i] += step.counts[tile][part];
    total += counts[i] / granule;
  }
  u32 place = exclusive_sum(block, step.scratch, total);
  DG_UNROLL
  for (u32 i = 0; i < own; ++i) {
    const u32 part = first + i, filled = counts[i] / granule, over = counts[i] % granule;
    if (part >= parts) continue;
    const u32 missing = step.missing[part], waiting = step.waiting[part];
    const u32 cursor = step.cursors[part];
    for (u32 nth = 0; nth < filled && nth < kFewGranules; ++nth)
      step.granules[place + nth] = cursor + nth;
    if (filled > kFewGranules) block.store(&step.many_at, start);
    if (filled && missing) {
      step.partial[part] = u64{missing} << 32 | cursor;
      step.granules[place] = kPartial | part;
      step.missing[part] = 0;
      block.store(&step.partial_at, start);
    }
    const u32 begin = place * granule, end = begin + filled * granule;
    step.cursors[part] = cursor + filled;
    step.shifts[part] = cursor - place;
    step.filled[part] = static_cast<unsigned short>(filled);
    step.begins[part] = static_cast<unsigned short>(begin);
    step.moving[part] = static_cast<unsigned short>(filled ? waiting : 0);
    step.waiting[part] = static_cast<unsigned short>(over);
    u32 next = end << 16 | (begin + waiting);
    DG_UNROLL
    for (u32 tile = 0; tile < Step::counting; ++tile) {
      const u32 count = step.counts[tile][part];
      step.counts[tile][part] = next;
      next += count;
    }
    place += filled;
  }
  if (block.thread() == Block::threads - 1) step.total = place * granule;
}

/// Places the granules of parts that have many.
template <class Step, class Block>
DG_FN void place_granules(Block block, Step& step) {
  const auto tile = block.tile();
  for (u32 part = block.tile_index(); part < Step::parts; part += Block::tiles) {
    const u32 begin = step.begins[part] / Step::granule, filled = step.filled[part];
    for (u32 nth = kFewGranules + tile.lane(); nth < filled; nth += tile.size)
      step.granules[begin + nth] = step.shifts[part] + begin + nth;
  }
}

/// From ranks to places in the step; beyond `Step::room` to places among held rows.
template <u32 items, class Step, class Block, class Rows>
DG_FN void place_rows(Block block, Step& step, Rows rows, u32 (&places)[items]) {
  DG_UNROLL
  for (u32 i = 0; i < items; ++i) {
    if (!rows.has(row_of_item<items>(block, i))) continue;
    const u32 part = places[i] >> 16, found = counts_of(block, step)[part];
    const u32 place = (found + places[i]) & 0xffff, end = found >> 16;
    places[i] = place < end ? place : Step::room + part * Step::granule + place - end;
  }
}

}  // namespace dg

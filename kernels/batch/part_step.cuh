/// A step of a partition: the block ranks as many rows as shared memory holds, brings them into part
/// order there, and writes runs.
///
/// Only whole granules, 32 aligned bytes, are written: what is left of a part waits in shared memory
/// for the next step, so a granule is cut where a segment begins or ends only. Runs of 64 bytes at
/// any place took 3.5 ms where these take 2.0 (H200, 2**28 pairs of 4 + 4 bytes, 256 parts).
#pragma once

#include "core/atomic.cuh"
#include "core/block.cuh"
#include "core/platform.cuh"
#include "core/slot.cuh"

namespace dg {

/// Rows of one part: as they came, or in any order, which takes fewer instructions and less memory.
enum class Within { order, any_order };

/// Parts of one pass. Mirrored in dgpuhash/backend/partition_args.py.
template <class Block, Within within>
inline constexpr u32 kPassParts = Block::threads == 1       ? 2048
                                  : within == Within::order ? 256
                                                            : 384;

/// What a pass moves.
template <class Key, class Value>
struct PartColumns {
  const Key* keys;
  const Value* values;
  Key* keys_to;  // or null
  Value* values_to;
  i64* numbers_to;  // or null; the rows' numbers, of rows that stay in order
};

/// Rows that a thread brings to a step, in bytes of the widest column.
inline constexpr u32 kItemNbytes = kBlockKib < 99 ? 16 : kBlockKib < 227 ? 32 : 64;

/// A step's rows in shared memory. What is written are granules: 32 aligned bytes of the narrowest
/// column. Rows that do not fill one are held until others of their part come.
template <class Block, class Key, class Value, Within within>
struct PartStep {
  static constexpr u32 parts = kPassParts<Block, within>;
  static constexpr bool in_order = within == Within::order;
  // Of tiles that count their rows by themselves, or of all of them.
  static constexpr u32 counting = in_order ? Block::tiles : 1;
  static constexpr bool has_values = !same<Value, NoValue>;
  static constexpr u32 value_nbytes = has_values ? sizeof(Value) : sizeof(Key);
  static constexpr u32 narrow = sizeof(Key) < value_nbytes ? sizeof(Key) : value_nbytes;
  static constexpr u32 wide = sizeof(Key) < value_nbytes ? value_nbytes : sizeof(Key);

  // Where the columns differ, as many as with equal ones would spill.
  static constexpr u32 items = (narrow == wide ? kItemNbytes : kItemNbytes / 4 * 3) / wide;
  static constexpr u32 rows = Block::threads * items;
  static constexpr u32 granule = (kBlockKib < 99 ? 16 : 32) / narrow;
  static constexpr u32 held = parts * granule;
  static constexpr u32 room = rows + held;

  union {  // one column at a time, in part order
    Key keys[room];
    Value values[room];
    u32 numbers[room];
  } staged;
  // Of each part the rows that are held, before them room for those that other segments bring to
  // the same granule.
  Key held_keys[held];
  Value held_values[has_values ? held : 1];
  u32 held_numbers[in_order ? held : 1];
  // While rows are ranked: how many there are. Then where they begin, and above 16 bits where their
  // part ends.
  u32 counts[counting][parts];
  u32 cursors[parts];             // the next granule in memory
  u32 shifts[parts];              // from granules of the step to granules in memory
  unsigned short filled[parts];   // granules in the step
  unsigned short begins[parts];   // of the parts in the step
  unsigned short waiting[parts];  // held rows
  unsigned short moving[parts];   // held rows that this step writes
  unsigned short missing[parts];  // of those the ones that other segments bring
  u32 granules[room / granule];   // where the step's granules go in memory, or one of `partial`
  u64 partial[2 * parts];         // the first and the last granule of a part
  u32 scratch[Block::tiles];
  u32 total;       // staged rows
  u64 partial_at;  // the step that last had partial granules
  u64 many_at;     // the step that last had a part of many granules
};

/// A block of one lane writes row by row.
template <class Block, class Key, class Value, Within within>
  requires(Block::threads == 1)
struct PartStep<Block, Key, Value, within> {
  static constexpr u32 parts = kPassParts<Block, within>;
  u64 cursors[parts];
};

/// Marks a granule that other segments have rows in.
inline constexpr u32 kPartial = 1u << 31;

template <class Key, class Value, Within within>
struct PartStepOf {
  template <class Block>
  using In = PartStep<Block, Key, Value, within>;
};

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

/// Held words, as a thread takes them up and puts them down.
template <class Step, class Block, class Word>
struct HeldWords {
  static constexpr u32 own = (Step::held + Block::threads - 1) / Block::threads;
  Word of[own];

  DG_FN static constexpr bool has(u32 slot) {
    return Step::held % Block::threads == 0 || slot < Step::held;
  }

  DG_FN void take(Block block, const Word* held) {
    DG_UNROLL
    for (u32 i = 0; i < own; ++i) {
      const u32 slot = block.thread() + i * Block::threads;
      if (has(slot)) of[i] = held[slot];
    }
  }

  /// Those that this step writes go to the head of their part.
  DG_FN void put(Block block, const Step& step, Word* staged) const {
    DG_UNROLL
    for (u32 i = 0; i < own; ++i) {
      const u32 slot = block.thread() + i * Block::threads;
      const u32 part = slot / Step::granule, nth = slot % Step::granule;
      if (has(slot) && nth < step.moving[part]) staged[step.begins[part] + nth] = of[i];
    }
  }
};

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

/// The segment's rows of a part begin at `place`, maybe amid a granule.
template <class Block, class Key, class Value, Within within>
DG_FN void open_part(PartStep<Block, Key, Value, within>& step, u32 part, u64 place) {
  if constexpr (Block::threads == 1) {
    step.cursors[part] = place;
  } else {
    if (part == 0) step.partial_at = step.many_at = ~0ull;
    step.cursors[part] = static_cast<u32>(place / step.granule);
    step.missing[part] = static_cast<unsigned short>(place % step.granule);
    step.waiting[part] = step.missing[part];
  }
}

/// Granules of a part that one thread places; beyond, a tile does.
inline constexpr u32 kFewGranules = 16;

/// From the counts to places: where parts begin, and the counted rows in them. A part stages the
/// granules that it fills, or all that it has when `flushed`; the other rows are held.
template <class Step, class Block>
DG_FN void place_parts(Block block, Step& step, u64 start, bool flushed) {
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
    total += (counts[i] + (flushed ? granule - 1 : 0)) / granule;
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
    const bool cut = flushed && over;
    const u32 moved = filled + cut;
    if (cut) {
      step.partial[part] = u64{over} << 40 | (cursor + filled);
      step.granules[place + filled] = kPartial | part;
      block.store(&step.partial_at, start);
    }
    if (moved && missing) {
      const u32 end = filled ? granule : over;
      step.partial[parts + part] = u64{end} << 40 | u64{missing} << 32 | cursor;
      step.granules[place] = kPartial | (parts + part);
      step.missing[part] = 0;
      block.store(&step.partial_at, start);
    }
    const u32 begin = place * granule, end = begin + (flushed ? counts[i] : filled * granule);
    step.cursors[part] = cursor + moved;
    step.shifts[part] = cursor - place;
    step.filled[part] = static_cast<unsigned short>(filled);
    step.begins[part] = static_cast<unsigned short>(begin);
    step.moving[part] = static_cast<unsigned short>(moved ? waiting : 0);
    step.waiting[part] = static_cast<unsigned short>(flushed ? 0 : over);
    u32 next = end << 16 | (begin + waiting);
    DG_UNROLL
    for (u32 tile = 0; tile < Step::counting; ++tile) {
      const u32 count = step.counts[tile][part];
      step.counts[tile][part] = next;
      next += count;
    }
    place += moved;
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

/// Brings this thread's words of a column into part order.
template <u32 items, class Step, class Block, class Rows, class Staged, class Word>
DG_FN void stage(Block block, Rows rows, u32 (&places)[items], Staged* staged, Staged* held,
                 const Word& word) {
  DG_UNROLL
  for (u32 i = 0; i < items; ++i) compute_afresh(places[i]);
  DG_UNROLL
  for (u32 i = 0; i < items; ++i)
    if (rows.has(row_of_item<items>(block, i)))
      (places[i] < Step::room ? staged + places[i] : held + (places[i] - Step::room))[0] = word(i);
}

/// Writes the staged column, granule by granule.
template <class Step, class Block, class Staged, class Word, class Made>
DG_FN void write_granules(Block block, const Step& step, bool whole, const Staged* staged, Word* to,
                          const Made& made) {
  constexpr u32 granule = Step::granule, together = 4;
  const u32 total = step.total;
  u32 place = block.thread();
  const auto nth_of = [&](u32 at) {
    return (Block::threads % granule == 0 ? block.thread() : at) % granule;
  };
  const auto write = [&](u32 at, u32 target) {
    (to + nth_of(at))[u64{target} * granule] = made(staged[at]);
  };
  if (whole) {
    for (; place + (together - 1) * Block::threads < total; place += together * Block::threads) {
      u32 targets[together];
      DG_UNROLL
      for (u32 i = 0; i < together; ++i)
        targets[i] = step.granules[(place + i * Block::threads) / granule];
      DG_UNROLL
      for (u32 i = 0; i < together; ++i) write(place + i * Block::threads, targets[i]);
    }
  }
  DG_ROLL
  for (; place < total; place += Block::threads) {
    const u32 nth = nth_of(place);
    u32 target = step.granules[place / granule];
    if (target & kPartial) {
      const u64 partial = step.partial[target & ~kPartial];
      if (nth < (partial >> 32 & 0xff) || nth >= partial >> 40) continue;
      target = static_cast<u32>(partial);
    }
    write(place, target);
  }
}

/// Moves the rows of a step, which begin at `first`, in a segment that begins at `begin`.
template <u32 items, class Step, class Block, class Rows, class Digit, class Key, class Value>
DG_FN void scatter_step(Block block, Step& step, Rows rows, const Digit& digit,
                        const PartColumns<Key, Value>& columns, u64 begin, u64 first,
                        bool flushed) {
  const auto same_word = [](auto word) { return word; };
  u32 places[items];
  rank_rows(block, step, rows, digit, columns.keys + first, places);
  block.sync();
  place_parts(block, step, first, flushed);
  {
    HeldWords<Step, Block, Key> held;
    held.take(block, step.held_keys);
    block.sync();
    if (columns.keys_to) held.put(block, step, step.staged.keys);
    if (step.many_at == first) place_granules(block, step);
    place_rows<items>(block, step, rows, places);
    Key keys[items];
    // They are in the caches still: kept in registers they would spill.
    load_items(block, rows, columns.keys + first, keys);
    if (columns.keys_to) {
      stage<items, Step>(block, rows, places, step.staged.keys, step.held_keys,
                         [&](u32 i) { return keys[i]; });
    }
  }
  if constexpr (Step::has_values) {
    Value values[items];
    load_items(block, rows, columns.values + first, values);
    HeldWords<Step, Block, Value> held;
    held.take(block, step.held_values);
    block.sync();
    if (columns.keys_to)
      write_granules(block, step, step.partial_at != first, step.staged.keys, columns.keys_to,
                     same_word);
    block.sync();
    held.put(block, step, step.staged.values);
    stage<items, Step>(block, rows, places, step.staged.values, step.held_values,
                       [&](u32 i) { return values[i]; });
    block.sync();
    write_granules(block, step, step.partial_at != first, step.staged.values, columns.values_to,
                   same_word);
  } else {
    block.sync();
    if (columns.keys_to)
      write_granules(block, step, step.partial_at != first, step.staged.keys, columns.keys_to,
                     same_word);
  }
  if constexpr (Step::in_order) {
    if (columns.numbers_to) {
      HeldWords<Step, Block, u32> held;
      held.take(block, step.held_numbers);
      block.sync();
      held.put(block, step, step.staged.numbers);
      stage<items, Step>(block, rows, places, step.staged.numbers, step.held_numbers, [&](u32 i) {
        return static_cast<u32>(first - begin) + row_of_item<items>(block, i);
      });
      block.sync();
      write_granules(block, step, step.partial_at != first, step.staged.numbers, columns.numbers_to,
                     [&](u32 row) { return static_cast<i64>(begin + row); });
    }
  }
}

}  // namespace dg

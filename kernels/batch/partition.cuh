/// Stable partition of a batch, in blocks: DACHash's reorder (§IV) with the places counted before
/// rows move, so that no row waits for another and the order is the same in every run.
///
/// Rows are cut into segments, one for each block. Each block counts its segment's rows by part; the
/// exclusive sums of the counts, by part first and segment second, are the places where each segment
/// writes; then each block walks its segment again, in steps: it ranks a step's rows, brings them
/// into part order in shared memory, and writes runs. Blocks that run at once have neighbouring
/// segments, whose runs lie side by side: the L2 cache joins them to whole lines. Stable because
/// segments, steps, tiles, items and lanes are in row order. A block of one lane, as on the CPU, writes row by row: its caches
/// gather what goes to one part.
#pragma once

#include "core/block.cuh"
#include "core/hash.cuh"
#include "core/platform.cuh"
#include "core/slot.cuh"

namespace dg {

/// Parts of one pass. Mirrored in dgpuhash/backend/args.py.
template <class Block>
inline constexpr u32 kPassParts = Block::threads == 1 ? 2048 : 256;

/// The part of a key: digits of the owner among `spread` of its hash, or of the key itself.
struct Digit {
  u64 seed;
  u64 spread;  // below 2**32; 0: no hash
  u64 shift;
  u64 mask;

  /// Of several keys, so that what is the same for all is asked once.
  template <u32 number, class Key>
  DG_FN void of(const Key (&keys)[number], u32 (&parts)[number]) const {
    if (spread) {
      DG_UNROLL
      for (u32 i = 0; i < number; ++i)
        parts[i] = owner_of_hash(hash_key(keys[i], seed), static_cast<u32>(spread));
    } else {
      DG_UNROLL
      for (u32 i = 0; i < number; ++i) parts[i] = static_cast<u32>(keys[i]);
    }
    DG_UNROLL
    for (u32 i = 0; i < number; ++i) parts[i] = parts[i] >> shift & static_cast<u32>(mask);
  }

  template <class Key>
  DG_FN u32 of(Key key) const {
    u32 part[1];
    of({key}, part);
    return part[0];
  }
};

/// What a pass moves.
template <class Key, class Value>
struct PartColumns {
  const Key* keys;
  const Value* values;
  Key* keys_to;  // or null
  Value* values_to;
  i64* numbers_to;  // or null; the rows' numbers
};

/// Shared memory of the count.
template <class Block>
struct PartCounts {
  u32 of[kPassParts<Block>];
};

/// Adds rows [first, last) to the counts.
template <class Block, class Key>
DG_FN void count_parts(Block block, PartCounts<Block>& counts, const Digit& digit, const Key* keys,
                       u64 first, u64 last) {
  constexpr u32 together = 8;
  u64 row = first + block.thread();
  for (; row + (together - 1) * Block::threads < last; row += together * Block::threads) {
    Key key[together];
    u32 part[together];
    DG_UNROLL
    for (u32 i = 0; i < together; ++i) key[i] = keys[row + i * Block::threads];
    digit.of(key, part);
    DG_UNROLL
    for (u32 i = 0; i < together; ++i) block.add(&counts.of[part[i]], 1);
  }
  for (; row < last; row += Block::threads) block.add(&counts.of[digit.of(keys[row])], 1);
}

/// Rows that each thread of a block brings to a step; with twice as many the scatter spills.
inline constexpr u32 kStepItems = 8;

/// A step's rows in shared memory.
template <class Block, class Key, class Value>
struct PartStep {
  static constexpr u32 parts = kPassParts<Block>;
  static constexpr u32 rows = Block::threads * kStepItems;

  union {
    unsigned short counts[Block::tiles][parts];  // while rows are ranked: by tile
    Key keys[rows];                              // then one column, in part order
    Value values[rows];
    u32 numbers[rows];
  } staged;
  u8 part_of[rows];    // of the staged rows
  u64 cursors[parts];  // places in memory of the parts' next rows
  u64 shifts[parts];   // from places in the step to places in memory
  void* runs[parts];   // where the staged column's first row would go, were it of this part
  u32 scratch[Block::tiles];
};

template <class Key, class Value>
struct PartStepOf {
  template <class Block>
  using In = PartStep<Block, Key, Value>;
};

/// Which rows of a step there are: all, known when the kernel is compiled, or the first `rows`.
template <u32 most>
struct AllRows {
  static constexpr u32 rows = most;
  DG_FN static constexpr bool has(u32) { return true; }
};
struct FirstRows {
  u32 rows;
  DG_FN bool has(u32 row) const { return row < rows; }
};

/// The row of a thread's first item; the next ones are as many rows apart as a tile has lanes.
template <class Block>
DG_FN u32 first_row(Block block) {
  return block.tile_index() * kStepItems * Block::Lanes::size + block.tile().lane();
}

/// Ranks the rows of a step; `places` are where this thread's rows stand in part order.
template <class Step, class Block, class Rows, class Key>
DG_FN void rank_step(Block block, Step& step, Rows rows, const Digit& digit, const Key* keys,
                     u32 (&places)[kStepItems]) {
  constexpr u32 lanes = Block::Lanes::size, parts = Step::parts;
  const auto tile = block.tile();
  auto& counts = step.staged.counts[block.tile_index()];
  for (u32 part = tile.lane(); part < parts; part += lanes) counts[part] = 0;
  tile.sync();
  const u32 mine = first_row(block);
  Key key[kStepItems];
  u32 part[kStepItems];
  DG_UNROLL
  for (u32 i = 0; i < kStepItems; ++i) {
    const u32 row = mine + i * lanes;
    key[i] = rows.has(row) ? keys[row] : Key{0};
  }
  digit.of(key, part);
  DG_UNROLL
  for (u32 i = 0; i < kStepItems; ++i) {
    // Rows past the end are the last of the last part, where nobody looks.
    if (!rows.has(mine + i * lanes)) part[i] = parts - 1;
    const u32 peers = tile.template match_low<8>(part[i]);
    const u32 below = count_ones(peers & ones_below(tile.lane()));
    const u32 before = counts[part[i]];
    // All lanes have read before one writes, and it has written before the next item is read.
    tile.sync();
    if (below == 0) counts[part[i]] = static_cast<unsigned short>(before + count_ones(peers));
    tile.sync();
    places[i] = part[i] << 16 | (before + below);
  }
  block.sync();

  constexpr u32 own = (parts + Block::threads - 1) / Block::threads;
  const u32 first = block.thread() * own;
  const u32 end = first + own < parts ? first + own : parts;
  u32 total = 0;
  for (u32 part = first; part < end; ++part) {
    DG_UNROLL
    for (u32 other = 0; other < Block::tiles; ++other) {
      const u32 count = step.staged.counts[other][part];
      step.staged.counts[other][part] = static_cast<unsigned short>(total);
      total += count;
    }
  }
  const u32 before = exclusive_sum(block, step.scratch, total);
  for (u32 part = first; part < end; ++part) {
    const u32 begin = step.staged.counts[0][part];
    const u32 next = part + 1 < end ? step.staged.counts[0][part + 1] : total;
    step.shifts[part] = step.cursors[part] - (before + begin);
    // Rows past the end are counted too, but no step comes after them.
    step.cursors[part] += next - begin;
    DG_UNROLL
    for (u32 other = 0; other < Block::tiles; ++other)
      step.staged.counts[other][part] =
          static_cast<unsigned short>(step.staged.counts[other][part] + before);
  }
  block.sync();

  DG_UNROLL
  for (u32 i = 0; i < kStepItems; ++i) {
    const u32 part = places[i] >> 16;
    places[i] = counts[part] + (places[i] & 0xffff);
    step.part_of[places[i]] = static_cast<u8>(part);
  }
  block.sync();
}

/// Calls `body(place)` for the places of a step that this thread writes.
template <class Step, class Block, class Rows, class Body>
DG_FN void for_each_place(Block block, Rows rows, const Body& body) {
  DG_UNROLL
  for (u32 i = 0; i < kStepItems; ++i) {
    const u32 place = block.thread() + i * Block::threads;
    if (rows.has(place)) body(place);
  }
}

/// Brings a column of a step into part order, and writes it run by run.
template <class Step, class Block, class Rows, class Staged, class Read, class Word, class Write>
DG_FN void move_column(Block block, Step& step, Rows rows, const u32 (&places)[kStepItems],
                       Staged* staged, const Read& read, Word* to, const Write& write) {
  const u32 mine = first_row(block);
  DG_UNROLL
  for (u32 i = 0; i < kStepItems; ++i) {
    const u32 row = mine + i * Block::Lanes::size;
    if (rows.has(row)) staged[places[i]] = read(row);
  }
  for (u32 part = block.thread(); part < Step::parts; part += Block::threads)
    step.runs[part] = to + step.shifts[part];
  block.sync();
  for_each_place<Step>(block, rows, [&](u32 place) {
    static_cast<Word*>(step.runs[step.part_of[place]])[place] = write(staged[place]);
  });
  block.sync();
}

/// Moves the rows of a step, which begin at `first`.
template <class Step, class Block, class Rows, class Key, class Value>
DG_FN void scatter_step(Block block, Step& step, Rows rows, const Digit& digit,
                        const PartColumns<Key, Value>& columns, u64 first) {
  const auto same_word = [](auto word) { return word; };
  u32 places[kStepItems];
  const Key* const keys = columns.keys + first;
  rank_step(block, step, rows, digit, keys, places);
  // The keys are in the caches still: kept in registers they would spill.
  if (columns.keys_to)
    move_column(
        block, step, rows, places, step.staged.keys, [&](u32 row) { return keys[row]; },
        columns.keys_to, same_word);
  if constexpr (!same<Value, NoValue>) {
    const Value* const values = columns.values + first;
    move_column(
        block, step, rows, places, step.staged.values, [&](u32 row) { return values[row]; },
        columns.values_to, same_word);
  }
  if (columns.numbers_to)
    move_column(
        block, step, rows, places, step.staged.numbers, [](u32 row) { return row; },
        columns.numbers_to, [&](u32 row) { return static_cast<i64>(first + row); });
}

/// Moves rows [first, last); the step's cursors are the places where the segment's rows go.
template <class Block, class Key, class Value>
DG_FN void scatter_parts(Block block, PartStep<Block, Key, Value>& step, const Digit& digit,
                         const PartColumns<Key, Value>& columns, u64 first, u64 last) {
  using Step = PartStep<Block, Key, Value>;
  if constexpr (Block::threads == 1) {
    // Copies, which the compiler knows to stay as they are.
    const Digit of = digit;
    const PartColumns<Key, Value> moved = columns;
    for (u64 row = first; row < last; ++row) {
      const Key key = moved.keys[row];
      const u64 place = step.cursors[of.of(key)]++;
      if (moved.keys_to) moved.keys_to[place] = key;
      if constexpr (!same<Value, NoValue>) moved.values_to[place] = moved.values[row];
      if (moved.numbers_to) moved.numbers_to[place] = static_cast<i64>(row);
    }
  } else {
    u64 start = first;
    for (; start + Step::rows <= last; start += Step::rows)
      scatter_step(block, step, AllRows<Step::rows>{}, digit, columns, start);
    if (start < last)
      scatter_step(block, step, FirstRows{static_cast<u32>(last - start)}, digit, columns, start);
  }
}

}  // namespace dg

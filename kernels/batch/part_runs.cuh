/// Runs of equal keys in one part of a partition by hash, found in a block's shared memory: what further
/// passes over the batch would do, where a part is small enough and keys come a few times each.
///
/// Rows are put in order as words, a row's number below some bits of its key's hash: first into bins, in
/// any order, then by comparing them with the other words of their bin. Keys that these bits leave
/// together are parted by the rest of the hash. Keys and values stay where they are until they are
/// written.
#pragma once

#include "batch/group_runs.cuh"
#include "core/block.cuh"
#include "core/block_atomic.cuh"

namespace dg {

/// Rows that a part may have, so that three blocks of any layout have a multiprocessor's memory on an H200.
/// As in dgpuhash/backend/constants.py.
inline constexpr u32 kPartRows = kBlockKib < 99 ? 2048 : 3072;

/// Blocks on a multiprocessor; elsewhere a third one would spill.
inline constexpr u32 kPartBlocks = kBlockKib < 227 ? 2 : 3;

/// A word: whether its row begins a run, bits of the hash, the row's number.
inline constexpr u32 kRowBits = 12;
inline constexpr u32 kRowMask = (1u << kRowBits) - 1;
inline constexpr u32 kWithinBits = 16;
inline constexpr u32 kBeginsRun = 1u << 31;
static_assert(kPartRows <= 1u << kRowBits && kRowBits + kWithinBits < 32);

/// Bins that words are put in, by their highest bits.
inline constexpr u32 kBins = 2048;
inline constexpr u32 kBinShift = kRowBits + kWithinBits - 11;

/// Rows of a part that may begin another key with the same bits of the hash.
inline constexpr u32 kMixedRows = 256;

/// Runs of a part that has more rows, or more mixed ones; also the sum of several exceeds any batch.
inline constexpr u64 kNoRoom = 1ull << 40;

template <class Key, class Value>
struct PartRunsOf {
  /// Shared memory of a block.
  template <class Block>
  struct Memory {
    static constexpr u32 items = kPartRows / Block::threads;
    using Short = unsigned short;

    Key keys[kPartRows];
    Value values[kPartRows];
    u32 words[kPartRows];
    u32 bins[kBins + 1];       // words in them, then where they begin
    Short mixed[kMixedRows];   // places of rows that begin a mixed key
    Short firsts[kMixedRows];  // and where the rows around them begin
    Short lengths[kMixedRows];
    u32 mixed_count;
    u32 scratch[Block::tiles];
  };
};

/// A tile's share of a part's places: neighbours, in the order of the tiles.
struct Places {
  u32 first;
  u32 last;
};
template <class Block>
DG_FN Places places_of_tile(Block block, u32 rows) {
  const u32 share = (rows + Block::threads - 1) / Block::threads * Block::Lanes::size;
  const u32 first = block.tile_index() * share, last = first + share;
  return {first < rows ? first : rows, last < rows ? last : rows};
}

template <class Block, class Word>
DG_FN void prefetch_lines(Block block, const Word* column, u32 rows) {
  constexpr u32 together = kBucketBytes / sizeof(Word);
  for (u32 row = block.thread() * together; row < rows; row += Block::threads * together)
    prefetch(column + row);
}

/// Brings the part's rows into shared memory, and their words in order.
template <class Block, class Memory, class Key, class Value>
DG_FN void order_part(Block block, Memory& memory, const RunOrder& order, u32 within,
                      const Key* keys, const Value* values, u32 rows) {
  constexpr u32 items = Memory::items, own = (kBins + Block::threads - 1) / Block::threads;
  // All lines at once; rows that wait in registers for others of their thread would spill.
  prefetch_lines(block, keys, rows);
  prefetch_lines(block, values, rows);
  for (u32 bin = block.thread(); bin < kBins; bin += Block::threads) memory.bins[bin] = 0;
  if (block.thread() == 0) memory.mixed_count = 0;
  block.sync();
  // Of each item its word, and its place in the bin or after all.
  u32 words[items], places[items];
  const auto for_each_item = [&](const auto& visit) {
    DG_UNROLL
    for (u32 i = 0; i < items; ++i) {
      if (i * Block::threads >= rows) break;
      const u32 row = i * Block::threads + block.thread();
      if (row < rows) visit(i, row);
    }
  };
  for_each_item([&](u32 i, u32 row) {
    const Key key = keys[row];
    memory.keys[row] = key;
    words[i] = (order.owner(key) & within) << kRowBits | row;
    places[i] = block_fetch_add(memory.bins + (words[i] >> kBinShift), 1);
  });
  for_each_item([&](u32, u32 row) { memory.values[row] = values[row]; });
  block.sync();
  u32 total = 0;
  const u32 first = block.thread() * own;
  for (u32 bin = first; bin < first + own && bin < kBins; ++bin) total += memory.bins[bin];
  u32 next = exclusive_sum(block, memory.scratch, total);
  for (u32 bin = first; bin < first + own && bin < kBins; ++bin) {
    const u32 count = memory.bins[bin];
    memory.bins[bin] = next;
    next += count;
  }
  if (block.thread() == 0) memory.bins[kBins] = rows;
  block.sync();
  for_each_item(
      [&](u32 i, u32) { memory.words[memory.bins[words[i] >> kBinShift] + places[i]] = words[i]; });
  block.sync();
  for_each_item([&](u32 i, u32 place) {
    const u32 word = memory.words[place];
    const u32* bin = memory.bins + (word >> kBinShift);
    const u32 begin = bin[0], end = bin[1];
    u32 before = 0;
    DG_UNROLL_BY_4
    for (u32 other = begin; other < end; ++other) before += memory.words[other] < word;
    words[i] = word;
    places[i] = begin + before;
  });
  block.sync();
  for_each_item([&](u32 i, u32) { memory.words[places[i]] = words[i]; });
  block.sync();
}

/// Marks the words whose rows begin a run; gives how many of the tile's do. Those whose bits of the hash
/// are another key's as well are listed, if that is `wanted`.
template <class Block, class Memory>
DG_FN u32 mark_runs(Block block, Memory& memory, u32 rows, bool wanted) {
  const auto tile = block.tile();
  const Places places = places_of_tile(block, rows);
  // What the lane below saw; the first lane gets what the last one saw a step before.
  const u32 below = (tile.lane() - 1) & (tile.size - 1);
  u32 word_before = memory.words[places.first > 0 ? places.first - 1 : 0];
  auto key_before = memory.keys[word_before & kRowMask];
  block.sync();
  u32 runs = 0;
  for (u32 start = places.first; start < places.last; start += tile.size) {
    const u32 place = start + tile.lane();
    const bool there = place < places.last;
    const u32 word = there ? memory.words[place] : 0;
    const auto key = memory.keys[word & kRowMask];
    const u32 word_passed = tile.shuffle(word, below);
    const auto key_passed = tile.shuffle(key, below);
    if (tile.lane() != 0) word_before = word_passed, key_before = key_passed;
    const bool begins = there && (place == 0 || key != key_before);
    if (there) memory.words[place] = (word & ~kBeginsRun) | (begins ? kBeginsRun : 0);
    if (wanted && begins && place > 0 && ((word ^ word_before) & ~kBeginsRun) <= kRowMask) {
      const u32 nth = block_fetch_add(&memory.mixed_count, 1);
      if (nth < kMixedRows) memory.mixed[nth] = static_cast<typename Memory::Short>(place);
    }
    word_before = word_passed, key_before = key_passed;
    runs += count_ones(tile.ballot(begins));
  }
  return runs;
}

/// Brings equal keys together among the rows that are listed as mixed.
template <class Block, class Memory>
DG_FN void part_mixed(Block block, Memory& memory, u64 seed, u32 rows, u32 mixed) {
  using Short = typename Memory::Short;
  const auto tile = block.tile();
  const auto key_at = [&](u64 place) { return memory.keys[memory.words[place] & kRowMask]; };
  const auto bits_at = [&](u64 place) { return (memory.words[place] & ~kBeginsRun) >> kRowBits; };
  for (u32 i = block.tile_index(); i < mixed; i += Block::tiles) {
    const MixedRows found = mixed_rows(tile, rows, bits_at, key_at, memory.mixed[i]);
    if (tile.lane() != 0) continue;
    memory.firsts[i] = static_cast<Short>(found.first);
    memory.lengths[i] = static_cast<Short>(found.length);
  }
  block.sync();
  // The bits of the hash are not needed any more: in their place stand the rows' numbers in the new order.
  for (u32 i = block.tile_index(); i < mixed; i += Block::tiles) {
    u32* const words = memory.words + memory.firsts[i];
    const u32 length = memory.lengths[i];
    for_each_by_hash(
        tile, length, [&](u64 row) { return hash_key(memory.keys[words[row] & kRowMask], seed); },
        [&](u64 row, u64 to, bool mine) {
          const u32 number = words[row < length ? row : 0] & kRowMask;
          tile.sync();
          if (mine) words[to] = (words[to] & kRowMask) | number << kRowBits;
          tile.sync();
        });
    DG_ROLL
    for (u32 row = tile.lane(); row < length; row += tile.size) words[row] = words[row] >> kRowBits;
  }
  block.sync();
}

/// What the blocks of all tiles before this one have, and all together.
struct TileSum {
  u32 before;
  u32 all;
};
template <class Block>
DG_FN TileSum sum_of_tiles(Block block, u32* scratch, u32 term) {
  if (block.tile().lane() == 0) scratch[block.tile_index()] = term;
  block.sync();
  TileSum sum{0, 0};
  for (u32 tile = 0; tile < Block::tiles; ++tile) {
    if (tile < block.tile_index()) sum.before += scratch[tile];
    sum.all += scratch[tile];
  }
  return sum;
}

/// Groups the rows of a part by key: its values by ascending hash of their keys, else in row order, and
/// of each run the key and the first row. These overwrite the part's `keys`. Gives the number of runs,
/// or `kNoRoom`, when nothing was written.
template <class Block, class Memory, class Key, class Value>
DG_FN u64 group_part(Block block, Memory& memory, const RunOrder& order, u32 within, Key* keys,
                     const Value* values, u64 length, Key* run_keys, Value* values_to) {
  if (length > kPartRows) return kNoRoom;
  const u32 rows = static_cast<u32>(length);
  if (rows == 0) return 0;
  order_part(block, memory, order, within, keys, values, rows);
  u32 runs = mark_runs(block, memory, rows, true);
  block.sync();
  const u32 mixed = memory.mixed_count;
  if (mixed > kMixedRows) return kNoRoom;
  if (mixed > 0) {
    part_mixed(block, memory, order.seed, rows, mixed);
    runs = mark_runs(block, memory, rows, false);
  }
  const TileSum sum = sum_of_tiles(block, memory.scratch, runs);
  const auto tile = block.tile();
  const Places places = places_of_tile(block, rows);
  u32 run = sum.before;
  for (u32 start = places.first; start < places.last; start += tile.size) {
    const u32 place = start + tile.lane();
    const bool there = place < places.last;
    const u32 word = there ? memory.words[place] : 0;
    const u32 begun = tile.ballot(word & kBeginsRun);
    if (there) values_to[place] = memory.values[word & kRowMask];
    if (word & kBeginsRun) {
      const u32 nth = run + count_ones(begun & ones_below(tile.lane()));
      run_keys[nth] = memory.keys[word & kRowMask];
      keys[nth] = static_cast<Key>(place);
    }
    run += count_ones(begun);
  }
  return sum.all;
}

}  // namespace dg

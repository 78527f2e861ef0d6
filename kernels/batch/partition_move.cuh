/// Rows of a partition's step on their way through shared memory to their parts.
#pragma once

#include "batch/partition_place.cuh"
#include "batch/partition_step.cuh"
#include "core/block.cuh"

namespace dg {

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
      if (nth < partial >> 32) continue;
      target = static_cast<u32>(partial);
    }
    write(place, target);
  }
}

/// Moves the rows of a step, which begin at `first`, in a segment that begins at `begin`.
template <u32 items, class Step, class Block, class Rows, class Digit, class Key, class Value>
DG_FN void scatter_step(Block block, Step& step, Rows rows, const Digit& digit,
                        const PartColumns<Key, Value>& columns, u64 begin, u64 first) {
  const auto same_word = [](auto word) { return word; };
  u32 places[items];
  rank_rows(block, step, rows, digit, columns.keys + first, places);
  block.sync();
  place_parts(block, step, first);
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

/// Writes the rows that are held after the last step of a segment that begins at `begin`.
template <class Step, class Block, class Key, class Value>
DG_FN void write_held(Block block, const Step& step, const PartColumns<Key, Value>& columns,
                      u64 begin) {
  DG_ROLL
  for (u32 slot = block.thread(); slot < Step::held; slot += Block::threads) {
    const u32 part = slot / Step::granule, nth = slot % Step::granule;
    if (nth < step.missing[part] || nth >= step.waiting[part]) continue;
    const u64 place = u64{step.cursors[part]} * Step::granule + nth;
    if (columns.keys_to) columns.keys_to[place] = step.held_keys[slot];
    if constexpr (Step::has_values) columns.values_to[place] = step.held_values[slot];
    if constexpr (Step::in_order)
      if (columns.numbers_to)
        columns.numbers_to[place] = static_cast<i64>(begin + step.held_numbers[slot]);
  }
}

}  // namespace dg

/// Partition of a batch, in blocks: DACHash's reorder (§IV) with the places counted before rows move, so
/// that no row waits for another.
///
/// Rows are cut into segments, one for each block. Each block counts its segment's rows by part; the
/// exclusive sums of the counts, by part first and segment second, are the places where each segment
/// writes; then each block walks its segment again, in steps (part_step.cuh). Where rows of a part
/// stay in order, they do because segments, steps, tiles, items and lanes are in row order. A block
/// of one lane, as on the CPU, writes row by row: its caches gather what goes to one part.
#pragma once

#include "batch/partition_move.cuh"
#include "batch/partition_step.cuh"
#include "core/block.cuh"
#include "core/fields.cuh"
#include "core/hash.cuh"
#include "core/platform.cuh"
#include "core/slot.cuh"

namespace dg {

/// The part of a key: digits of the owner among `spread` of its hash, or of the key itself.
struct Digit {
  u64 seed;
  u64 spread;  // below 2**32; 0: no hash
  u64 shift;
  u64 mask;

  DG_FIELDS(seed, spread, shift, mask)

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

/// From digits to parts: a key has its owner's by another hash, and of that one's parts the range that its
/// digit is in. Without owners a part is a digit.
struct Route {
  u64 owners;
  u64 seed;
  u64 ranges;  // of an owner
  u64 scale;   // 2**32 / the digits of a range, rounded up

  DG_FIELDS(owners, seed, ranges, scale)
};

/// The part of a key by digit and route.
struct RoutedDigit {
  Digit digit;
  Route route;
  u32 first;  // digit, where keys are not routed

  template <u32 number, class Key>
  DG_FN void of(const Key (&keys)[number], u32 (&parts)[number]) const {
    digit.of(keys, parts);
    if (route.owners == 0) {
      DG_UNROLL
      for (u32 i = 0; i < number; ++i) parts[i] -= first;
      return;
    }
    DG_UNROLL
    for (u32 i = 0; i < number; ++i) {
      const u32 range = static_cast<u32>(u64{parts[i]} * static_cast<u32>(route.scale) >> 32);
      const u64 hash = hash_key(keys[i], route.seed);
      const u32 owner = owner_of_hash(hash, static_cast<u32>(route.owners));
      parts[i] = owner * static_cast<u32>(route.ranges) + range;
    }
  }

  template <class Key>
  DG_FN u32 of(Key key) const {
    u32 part[1];
    of({key}, part);
    return part[0];
  }
};

/// Shared memory of the count.
template <class Block>
struct PartCounts {
  u32 of[kPassParts<Block, Within::any_order>];
};

/// Adds rows [first, last) to the counts.
template <class Block, class Key>
DG_FN void count_parts(Block block, PartCounts<Block>& counts, const RoutedDigit& digit,
                       const Key* keys, u64 first, u64 last) {
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

/// Moves rows [first, last); `open_part` was told where the segment's rows go.
template <class Block, class Key, class Value, Within within, class Digit>
DG_FN void scatter_parts(Block block, PartStep<Block, Key, Value, within>& step, const Digit& digit,
                         const PartColumns<Key, Value>& columns, u64 first, u64 last) {
  using Step = PartStep<Block, Key, Value, within>;
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
    constexpr u32 some = Step::items / 3;
    // Since what tells whether there is a row takes registers.
    constexpr u32 few = 2;
    u64 start = first;
    for (; start + Step::rows <= last; start += Step::rows)
      scatter_step<Step::items>(block, step, AllRows{}, digit, columns, first, start);
    if constexpr (some > few)
      for (; start + some * Block::threads <= last; start += some * Block::threads)
        scatter_step<some>(block, step, AllRows{}, digit, columns, first, start);
    for (; start < last; start += few * Block::threads)
      scatter_step<few>(block, step, FirstRows{last - start}, digit, columns, first, start);
    block.sync();
    write_held(block, step, columns, first);
    block.sync();
  }
}

}  // namespace dg

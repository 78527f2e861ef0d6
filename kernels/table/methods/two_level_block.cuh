/// How a block builds the three subtables of a bucket in its shared memory (thesis §5.2.2, Algorithm 5.3 and
/// Listing 5.2), and writes them to the table.
///
/// In every step all keys that stand nowhere write themselves into the next of the three subtables, where one
/// of those that want a slot stays and whoever was there is evicted. Rows keep no state, so that a bucket may
/// have any number of them where keys have copies: a step reads the subtables as they were before it, and
/// writes a copy. So a key stands in one slot at most, and all of its rows see the same. Five buffers go
/// round: three subtables, the copy that is written, and the one that is made for the next step meanwhile,
/// which spares a barrier.
#pragma once

#include "core/block.cuh"
#include "core/block_atomic.cuh"
#include "table/methods/two_level_cuckoo.cuh"

namespace dg {

inline constexpr u32 kCuckooBuffers = 5;
/// Rounds of the three subtables until a seed is given up.
inline constexpr u32 kMostIterations = 25;
/// Rows whose keys and places a block keeps; those of further copies are read and hashed again.
inline constexpr u32 kHeldRows = 1024;

template <class Table>
struct CuckooBlockOf {
  /// Shared memory of a block.
  template <class Block>
  struct Memory {
    using Key = typename Table::Key;

    Key buffers[kCuckooBuffers][kMostSubtableSlots];
    Key held[kHeldRows];
    u32 places[kHeldRows];
    u32 counts[Table::has_lists ? kSubtables * kMostSubtableSlots : 1];  // of each slot's values
    u32 unplaced;  // the last round that found keys without a slot
    u32 stored;    // different keys
    u32 taken;     // values that have their places
  };
};

/// One bucket. `keys` and `values` are its rows'.
template <class Table, class Memory>
struct CuckooBlock {
  using Key = typename Table::Key;
  using Value = typename Table::Value;

  const Table& table;
  Memory& memory;
  const Key* keys;
  const Value* values;
  u32 rows;

  static constexpr u32 failed = ~0u;

  /// Before the first attempt; a barrier follows in it.
  template <class Block>
  DG_FN void begin(Block block) const {
    for (u32 row = block.thread(); row < rows && row < kHeldRows; row += Block::threads)
      memory.held[row] = keys[row];
    if constexpr (Table::has_lists)
      for (u32 slot = block.thread(); slot < table.bucket_slots(); slot += Block::threads)
        memory.counts[slot] = 0;
    if (block.thread() == 0) memory.unplaced = memory.stored = memory.taken = 0;
  }

  /// Gives every key a slot, or `failed`: after how many iterations.
  template <class Block>
  DG_FN u32 place_all(Block block, u32 seed, u32 attempt) const {
    for (u32 slot = block.thread(); slot < kMostSubtableSlots; slot += Block::threads) {
      DG_UNROLL
      for (u32 buffer = 0; buffer < kCuckooBuffers; ++buffer)
        memory.buffers[buffer][slot] = Mark<Key>::empty;
    }
    for (u32 row = block.thread(); row < rows && row < kHeldRows; row += Block::threads)
      memory.places[row] = places_of(memory.held[row], seed);
    block.sync();
    for (u32 step = 0;; ++step) {
      Key* const written = memory.buffers[step % kCuckooBuffers];
      Key* const next = memory.buffers[(step + 1) % kCuckooBuffers];
      const Key* const next_was = memory.buffers[(step + 3) % kCuckooBuffers];
      for (u32 slot = block.thread(); slot < table.at.subtable_slots; slot += Block::threads)
        next[slot] = next_was[slot];
      bool waits = false;
      for_each_row(block, seed, [&](u32, Key key, u32 places) {
        if (slot_of(key, places, step) != none) return;
        // One of several keys stays: an exchange, since racecheck takes relaxed stores for plain ones.
        block_exchange(written + place_in(places, step % kSubtables), key);
        waits = true;
      });
      const u32 round = attempt * (kMostIterations + 1) + step / kSubtables + 1;
      const bool round_begins = step % kSubtables == 0;
      if (round_begins && waits) block_store(&memory.unplaced, round);
      block.sync();
      if (!round_begins) continue;
      if (block_load(&memory.unplaced) != round) return step / kSubtables;
      if (step == kSubtables * kMostIterations) return failed;
    }
  }

  /// Writes the subtables of a bucket as they are after so many iterations.
  template <class Block>
  DG_FN void store(Block block, u32 bucket, u32 seed, u32 iterations) const {
    const u32 step = kSubtables * iterations;
    const u64 first = table.first_slot(bucket);
    const auto slots = table.slots();
    if constexpr (Table::has_lists) count_rows(block, seed, step);
    u32 stored = 0;
    for (u32 subtable = 0; subtable < kSubtables; ++subtable) {
      const Key* const from = memory.buffers[(step + 2 + subtable) % kCuckooBuffers];
      for (u32 place = block.thread(); place < table.at.subtable_slots; place += Block::threads) {
        const u32 slot = subtable * table.at.subtable_slots + place;
        const Key key = from[place];
        const bool here = key != Mark<Key>::empty;
        stored += here;
        if constexpr (Table::has_lists) {
          *slots.key_at(first + slot) = key;
          table.at.lists[first + slot] = here ? reserve_list(slot) : 0;
        } else if constexpr (Table::has_value) {
          if (!here) slots.fill(first + slot, key, static_cast<Value>(~Value{0}));
        } else {
          *slots.key_at(first + slot) = key;
        }
      }
    }
    if (stored != 0) block_add(&memory.stored, stored);
    if constexpr (Table::has_lists) {
      block.sync();
      Value* const to = static_cast<Value*>(table.at.values) + table.at.list_starts[bucket];
      for_each_row(block, seed, [&](u32 row, Key key, u32 places) {
        to[block_fetch_add(&memory.counts[slot_of(key, places, step)], 1)] = values[row];
      });
    } else if constexpr (Table::has_value) {
      for_each_row(block, seed, [&](u32 row, Key key, u32 places) {
        slots.fill(first + slot_of(key, places, step), key, values[row]);
      });
    }
  }

 private:
  static constexpr u32 none = ~0u;

  template <class Block, class Body>
  DG_FN void for_each_row(Block block, u32 seed, const Body& body) const {
    DG_ROLL
    for (u32 row = block.thread(); row < rows; row += Block::threads) {
      const bool held = row < kHeldRows;
      const Key key = held ? memory.held[row] : keys[row];
      body(row, key, held ? memory.places[row] : places_of(key, seed));
    }
  }

  DG_FN u32 places_of(Key key, u32 seed) const {
    const LevelBits bits = table.bits_of(key);
    u32 places = 0;
    DG_UNROLL
    for (u32 subtable = 0; subtable < kSubtables; ++subtable)
      places |= table.place_of(bits, seed, subtable) << kPlaceBits * subtable;
    return places;
  }

  DG_FN static u32 place_in(u32 places, u32 subtable) {
    return places >> kPlaceBits * subtable & ((1u << kPlaceBits) - 1);
  }

  /// The slot of the bucket where a key stands before a step, or `none`. The subtable that was written s steps
  /// ago stands in the buffer of that step.
  DG_FN u32 slot_of(Key key, u32 places, u32 step) const {
    u32 slot = none;
    DG_UNROLL
    for (u32 later = 0; later < kSubtables; ++later) {
      const u32 subtable = (step + later) % kSubtables, place = place_in(places, subtable);
      if (memory.buffers[(step + 2 + later) % kCuckooBuffers][place] == key)
        slot = subtable * table.at.subtable_slots + place;
    }
    return slot;
  }

  template <class Block>
  DG_FN void count_rows(Block block, u32 seed, u32 step) const {
    for_each_row(block, seed, [&](u32, Key key, u32 places) {
      block_add(&memory.counts[slot_of(key, places, step)], 1u);
    });
    block.sync();
  }

  /// Takes the places of a slot's values: its counter becomes that of the first, and goes on from there.
  DG_FN u64 reserve_list(u32 slot) const {
    const u32 count = memory.counts[slot];
    const u32 first = block_fetch_add(&memory.taken, count);
    memory.counts[slot] = first;
    return Table::list_of(first, count);
  }
};

}  // namespace dg

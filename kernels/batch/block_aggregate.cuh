/// Totals of the groups that one block meets, in its shared memory, so that many rows of few groups do
/// not queue up at the L2 cache; in several copies, so that lanes do not queue up at one word either.
/// Groups beyond its room go to the table themselves.
#pragma once

#include "batch/fold.cuh"
#include "core/block.cuh"
#include "core/block_atomic.cuh"

namespace dg {

DG_FN void add_in_block(u64* total, Fold fold, u64 word) {
  if (fold == Fold::sum) {
    block_add(total, word);
  } else if (fold == Fold::real_sum) {
    block_add(reinterpret_cast<double*>(total), real_of(word));
  } else if (fold == Fold::least) {
    if (word < block_load(total)) block_min(total, word);
  } else {
    if (word > block_load(total)) block_max(total, word);
  }
}

/// Powers of two.
struct FrontShape {
  u32 slots;
  u32 copies;
};

template <class Block>
struct GroupFront {
  static constexpr u32 kWords = 4096;
  static constexpr u32 kTries = 4;
  static constexpr u64 kNone = ~0ull;  // no key, no row

  /// Of all slots the keys, then the first rows, then for each column and copy the totals.
  u64 words[kWords];

  DG_FN void clear(Block block, FrontShape shape, const ReduceColumn* columns, u64 column_count) {
    for (u32 slot = block.thread(); slot < shape.slots; slot += block.threads)
      words[slot] = words[shape.slots + slot] = kNone;
    const u32 column_words = shape.slots * shape.copies;
    for (u64 i = 0; i < column_count; ++i) {
      const u64 nothing = neutral(columns[i].fold);
      for (u32 word = block.thread(); word < column_words; word += block.threads)
        words[2 * shape.slots + i * column_words + word] = nothing;
    }
  }

  /// Adds a row to the totals of its key; false where there is no room for the key. Lanes of different
  /// `lane` use different copies.
  DG_FN bool add(FrontShape shape, u64 key, u64 row, u32 lane, const ReduceColumn* columns,
                 u64 column_count) {
    // Read before the key is looked up, so that one wait covers both.
    u64 word = term_of(columns[0], row, row);
    const u32 slot = place(key, row, shape.slots);
    if (slot == shape.slots) return false;
    const u32 copy = lane & (shape.copies - 1);
    for (u64 i = 0; i < column_count; ++i) {
      if (i > 0) word = term_of(columns[i], row, row);
      add_in_block(word_at(shape, i, copy, slot), columns[i].fold, word);
    }
    return true;
  }

  /// What all copies came to.
  DG_FN u64 total(FrontShape shape, u64 column, u32 slot, Fold fold) {
    u64 sum = *word_at(shape, column, 0, slot);
    for (u32 copy = 1; copy < shape.copies; ++copy)
      sum = folded(fold, sum, *word_at(shape, column, copy, slot));
    return sum;
  }

 private:
  DG_FN u64* word_at(FrontShape shape, u64 column, u32 copy, u32 slot) {
    return words + (2 + column * shape.copies + copy) * shape.slots + slot;
  }

  /// Where the key stands from now on, or `slots`.
  DG_FN u32 place(u64 key, u64 row, u32 slots) {
    if (key == kNone) return slots;
    const u32 mixed =
        static_cast<u32>(key) * 0x9e3779b1u + static_cast<u32>(key >> 32) * 0x85ebca77u;
    u32 slot = mixed >> 16 & (slots - 1);
    for (u32 tries = 0; tries < kTries; ++tries, slot = (slot + 1) & (slots - 1)) {
      u64 found = block_load(words + slot);
      if (found == kNone) {
        found = block_swap_if(words + slot, kNone, key);
        if (found == kNone) found = key;
      }
      if (found != key) continue;
      if (block_load(words + slots + slot) > row) block_min(words + slots + slot, row);
      return slot;
    }
    return slots;
  }
};

}  // namespace dg

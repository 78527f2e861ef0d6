/// The slots of `auto`'s tables, the side slots among them. Knows no probe sequence; table/open.cuh walks
/// to the slots.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "core/outcome.cuh"
#include "core/slot.cuh"
#include "core/tree.cuh"
#include "table/claims.cuh"
#include "table/overflow.cuh"
#include "table/slots.cuh"

namespace dg {

/// In device memory, one for each table.
struct OpenState {
  u64 occupied;         // keys stored, those in the side slots included
  u64 erased;           // ERASED slots
  u64 pending;          // rows that found no place since Python last set this to 0
  u64 strayed;          // keys that were stored beyond their first segment
  u64 side_present[2];  // 1 where the key whose bits are EMPTY, ERASED is stored
  u64 side_value[2];    // their values; all ones where there is none

  DG_FIELDS(occupied, erased, pending, strayed, side_present, side_value)
};

/// A table as kernels get it, by value.
struct OpenStorage {
  void* keys;    // buckets of keys, or of pairs where the slot is paired
  void* values;  // one for each slot where it is not paired; else null
  OpenState* state;
  u32* overflow;      // words of the overflow filter; behind them the claims of keys of 16 bytes
  u64 buckets;        // whole segments
  u64 segment_shift;  // a segment has 2^segment_shift buckets
  u64 seed;

  DG_FIELDS(keys, values, state, overflow, buckets, segment_shift, seed)
};

template <class KeyType, class ValueType>
struct OpenSlots {
  using Slots = Slot<KeyType, ValueType>;
  using Key = KeyType;
  using Value = typename Slots::Value;

  OpenStorage at;

  /// Keys with the bits of a mark live in the side slots, which are numbered down from ~0.
  DG_FN static bool reserved(Key key) { return key >= Mark<Key>::erased; }
  DG_FN static u32 side_index(Key key) { return key == Mark<Key>::empty ? 0 : 1; }
  DG_FN static constexpr u64 side(u32 index) { return ~0ull - index; }

  DG_FN auto slots() const { return SlotArray<KeyType, ValueType>{at.keys, at.values}; }

  /// Where the value of a slot stands; only of slots whose value is a word of its own.
  DG_FN Value* value_at(u64 slot) const {
    if constexpr (sizeof(Value) == 8) {
      if (slot >= side(1)) return &at.state->side_value[~slot];
    }
    return slots().value_at(slot);
  }

  /// The value in a slot that is no side slot.
  DG_FN Value value_in(u64 slot) const { return slots().value_in(slot); }

  /// Replaces the value of a key that is stored; the whole of it.
  DG_FN void replace(u64 slot, Key key, Value value) const {
    if constexpr (Slots::has_value) {
      if (slot >= side(1))
        atomic_store<Order::relaxed>(&at.state->side_value[~slot], static_cast<u64>(value));
      else
        slots().replace(slot, key, value);
    }
  }

  /// Changes the value of a key that is stored, in one atomic step: rows of a key count in any order, each
  /// once. Float sums of four bytes take subnormal numbers for 0 on GPUs, as their atomics do.
  DG_FN void change(u64 slot, Value term, Change change) const {
    if (slot >= side(1))
      slots().template change_word<0>(&at.state->side_value[~slot], term, change);
    else
      slots().combine(slot, term, change);
  }

  /// Changes the value of a key that is stored to its lowest common ancestor with a node; as `change`.
  DG_FN void fold(u64 slot, Value node, const Tree& tree) const {
    if (slot >= side(1))
      slots().template fold_word<0>(&at.state->side_value[~slot], node, tree);
    else
      slots().fold(slot, node, tree);
  }

  /// Stores a pair in a slot that nobody else works at.
  DG_FN void fill(u64 slot, Key key, Value value) const { slots().fill(slot, key, value); }

  DG_FN Outcome publish(u64 slot, Key key, Value value) const {
    if constexpr (kClaimed<Key>)
      return claims().publish(slot, slots().key_at(slot), key, [&] {
        if constexpr (Slots::has_value) {
          if (value != ~Value{0}) slots().replace(slot, key, value);
        }
      });
    else
      return slots().publish(slot, key, value);
  }

  DG_FN bool withdraw(u64 slot, Key key, Key mark) const {
    if constexpr (kClaimed<Key>)
      return claims().withdraw(slot, slots().key_at(slot), mark, [&] {
        if constexpr (Slots::has_value) slots().replace(slot, key, ~Value{0});
      });
    else
      return slots().withdraw(slot, key, mark);
  }

  /// A quarter of a bucket.
  template <Access access>
  DG_FN Quarter load(u64 bucket, u32 part) const {
    const char* from =
        static_cast<const char*>(at.keys) + bucket * kBucketBytes + part * kQuarterBytes;
    constexpr bool beside_writers = access == Access::shared || access == Access::lasting;
    if constexpr (kClaimed<Key> && beside_writers)
      return claims().settled(bucket * kQuarters + part, reinterpret_cast<const Key*>(from));
    else
      return load_quarter<access, typename Slots::Unit>(from);
  }

 private:
  DG_FN Claims claims() const {
    constexpr u32 in_word = 32 / overflow_bits(Slots::per_bucket);
    return {at.overflow + (at.buckets + in_word - 1) / in_word};
  }
};

}  // namespace dg

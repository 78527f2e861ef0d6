/// The slots of an open-addressing table: how one is taken, changed and given back, each time in one
/// atomic step. Knows no probe sequence; table/open.cuh walks to the slots.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "core/outcome.cuh"
#include "core/slot.cuh"
#include "table/overflow.cuh"

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
  u32* overflow;      // words of the overflow filter
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

  /// Where the value of a slot stands; only of slots whose value is a word of its own.
  DG_FN Value* value_at(u64 slot) const {
    static_assert(Slots::has_value && !Slots::one_word);
    if constexpr (sizeof(Value) == 8) {
      if (slot >= side(1)) return &at.state->side_value[~slot];
    }
    if constexpr (Slots::paired)
      return static_cast<Value*>(at.keys) + 2 * slot + 1;
    else
      return static_cast<Value*>(at.values) + slot;
  }

  /// The value in a slot that is no side slot.
  DG_FN Value value_in(u64 slot) const {
    if constexpr (Slots::one_word)
      return static_cast<Value>(static_cast<const u64*>(at.keys)[slot] >> 32);
    else
      return *value_at(slot);
  }

  /// Replaces the value of a key that is stored; the whole of it.
  DG_FN void replace(u64 slot, Key key, Value value) const {
    if constexpr (Slots::has_value) {
      if (slot >= side(1))
        atomic_store<Order::relaxed>(&at.state->side_value[~slot], static_cast<u64>(value));
      else if constexpr (Slots::one_word)
        // The whole word, since the swaps of other tiles work on words of this size.
        atomic_store<Order::relaxed>(static_cast<u64*>(at.keys) + slot, Slots::word(key, value));
      else
        atomic_store<Order::relaxed>(value_at(slot), value);
    }
  }

  /// Changes the value of a key that is stored, in one atomic step: rows of a key count in any order, each
  /// once. Float sums of four bytes take subnormal numbers for 0 on GPUs, as their atomics do.
  DG_FN void change(u64 slot, Value term, Change change) const {
    if (slot >= side(1))
      change_word<0>(&at.state->side_value[~slot], term, change);
    else if constexpr (Slots::one_word)
      change_word<32>(static_cast<u64*>(at.keys) + slot, term, change);
    else
      change_word<0>(value_at(slot), term, change);
  }

  /// Stores a pair in a slot that nobody else works at.
  DG_FN void fill(u64 slot, Key key, Value value) const {
    if constexpr (Slots::one_word) {
      static_cast<u64*>(at.keys)[slot] = Slots::word(key, value);
    } else {
      static_cast<Key*>(at.keys)[slot * (Slots::nbytes / sizeof(Key))] = key;
      if constexpr (Slots::has_value) *value_at(slot) = value;
    }
  }

  /// created, existed (another tile was faster with the same key), or refused (with another key).
  /// Relaxed: what is published is the slot itself, and nobody follows it to other memory.
  DG_FN Outcome publish(u64 slot, Key key, Value value) const {
    Key found;
    if constexpr (Slots::one_word) {
      found = static_cast<Key>(atomic_swap_if<Order::relaxed>(static_cast<u64*>(at.keys) + slot,
                                                              ~0ull, Slots::word(key, value)));
    } else if constexpr (Slots::paired) {
      u64* pair = static_cast<u64*>(at.keys) + 2 * slot;
#if DG_GPU && __CUDA_ARCH__ >= 900
      static_assert(Slots::whole);
      u64 old_value = ~0ull;
      found = Mark<Key>::empty;
      atomic_swap_pair_if(pair, found, old_value, key, value);
#else
      found = atomic_swap_if<Order::relaxed>(pair, Mark<Key>::empty, key);
      if (found == Mark<Key>::empty) set_first_value(pair + 1, value);
#endif
    } else {
      found =
          atomic_swap_if<Order::relaxed>(static_cast<Key*>(at.keys) + slot, Mark<Key>::empty, key);
      if constexpr (Slots::has_value) {
        if (found == Mark<Key>::empty) set_first_value(value_at(slot), value);
      }
    }
    if (found == Mark<Key>::empty) return Outcome::created;
    return found == key ? Outcome::existed : Outcome::refused;
  }

  /// Leaves `mark` in the slot of `key`. One lane of those that erase the same key gets true.
  DG_FN bool withdraw(u64 slot, Key key, Key mark) const {
    if constexpr (Slots::one_word) {
      u64* place = static_cast<u64*>(at.keys) + slot;
      // Its value does not change while keys are erased.
      const u64 word = atomic_load<Order::relaxed>(place);
      if (static_cast<Key>(word) != key) return false;
      return atomic_swap_if<Order::relaxed>(place, word, Slots::word(mark, ~Value{0})) == word;
    } else {
      Key* place = static_cast<Key*>(at.keys) + slot * (Slots::nbytes / sizeof(Key));
      if (atomic_swap_if<Order::relaxed>(place, key, mark) != key) return false;
      if constexpr (Slots::has_value) atomic_store<Order::relaxed>(value_at(slot), ~Value{0});
      return true;
    }
  }

 private:
  /// Of a value that is the bits of a word from `shift` on.
  template <u32 shift, class Word>
  DG_FN static void change_word(Word* word, Value term, Change change) {
    constexpr Word below = shift == 0 ? 0 : (Word{1} << shift) - 1;
    if (change.action == OnExisting::sum) {
      if (change.kind != ValueKind::floating)
        return atomic_add<Order::relaxed>(word,
                                          static_cast<Word>(static_cast<Word>(term) << shift));
      if constexpr (sizeof(Value) == 8)
        return atomic_add<Order::relaxed>(reinterpret_cast<double*>(word), as_real<double>(term));
#if DG_GPU
      else
        return atomic_add<Order::relaxed>(reinterpret_cast<float*>(word) + shift / 32,
                                          as_real<float>(term));
#endif
    }
    Word held = atomic_load<Order::relaxed>(word);
    while (true) {
      const Value made = changed(static_cast<Value>(held >> shift), term, change);
      const Word wanted = static_cast<Word>(static_cast<Word>(made) << shift) | (held & below);
      if (wanted == held) return;
      const Word seen = atomic_swap_if<Order::relaxed>(word, held, wanted);
      if (seen == held) return;
      held = seen;
    }
  }

  /// All ones are there already, and are not stored again: another tile may have replaced them by
  /// now, as bucket lists do with the handle of a key that another tile has just created.
  template <class Word>
  DG_FN static void set_first_value(Word* at, Word value) {
    if (value != ~Word{0}) atomic_store<Order::relaxed>(at, value);
  }
};

}  // namespace dg

/// Slots of keys and values in memory: how one is taken, changed and given back, each time in one
/// atomic step. Knows neither a probe sequence nor a table's counters.
#pragma once

#include "core/atomic.cuh"
#include "core/outcome.cuh"
#include "core/slot.cuh"

namespace dg {

template <class KeyType, class ValueType, Layout layout = natural_layout<KeyType, ValueType>>
struct SlotArray {
  using Slots = Slot<KeyType, ValueType, layout>;
  using Key = KeyType;
  using Value = typename Slots::Value;

  /// Whether a key is never seen without its value, so that rows of one launch may combine their values.
  static constexpr bool whole_pairs = !Slots::has_value || Slots::one_word ||
                                      (DG_WIDE_SWAP && Slots::paired && sizeof(Key) == 8);

  void* keys;    // slots, or their keys where the layout is soa
  void* values;  // of each slot where the layout is soa

  DG_FN const char* quarter(u64 index) const {
    return static_cast<const char*>(keys) + index * kQuarterBytes;
  }

  DG_FN Key* key_at(u64 slot) const {
    return static_cast<Key*>(keys) + slot * (Slots::nbytes / sizeof(Key));
  }

  /// Where the value of a slot stands; only of slots whose value is a word of its own.
  DG_FN Value* value_at(u64 slot) const {
    static_assert(Slots::has_value && !Slots::one_word);
    if constexpr (Slots::paired)
      return static_cast<Value*>(keys) + 2 * slot + 1;
    else
      return static_cast<Value*>(values) + slot;
  }

  DG_FN Value value_in(u64 slot) const {
    if constexpr (Slots::one_word)
      return static_cast<Value>(static_cast<const u64*>(keys)[slot] >> 32);
    else if constexpr (Slots::has_value)
      return *value_at(slot);
    else
      return {};
  }

  /// Replaces the value of a key that is stored; the whole of it.
  DG_FN void replace(u64 slot, [[maybe_unused]] Key key, Value value) const {
    if constexpr (Slots::one_word)
      // The whole word, since the swaps of other tiles work on words of this size.
      atomic_store<Order::relaxed>(static_cast<u64*>(keys) + slot, Slots::word(key, value));
    else
      atomic_store<Order::relaxed>(value_at(slot), value);
  }

  /// Changes the value of a key that is stored. Rows that combine values with those of keys that the same
  /// launch creates need `whole_pairs`.
  DG_FN void change(u64 slot, Key key, Value value, Change how) const {
    if constexpr (Slots::has_value) {
      if (how.action == OnExisting::keep) return;
      if (how.action == OnExisting::overwrite) return replace(slot, key, value);
      if constexpr (Slots::one_word) {
        change_word(static_cast<u64*>(keys) + slot, [&](u64 word) {
          return Slots::word(key, changed(static_cast<Value>(word >> 32), value, how));
        });
      } else {
        change_word(value_at(slot), [&](Value held) { return changed(held, value, how); });
      }
    }
  }

  /// Stores a pair in a slot that nobody else works at.
  DG_FN void fill(u64 slot, Key key, Value value) const {
    if constexpr (Slots::one_word) {
      static_cast<u64*>(keys)[slot] = Slots::word(key, value);
    } else {
      *key_at(slot) = key;
      if constexpr (Slots::has_value) *value_at(slot) = value;
    }
  }

  /// created, existed (another tile was faster with the same key), or refused (with another key).
  /// Relaxed: what is published is the slot itself, and nobody follows it to other memory.
  DG_FN Outcome publish(u64 slot, Key key, Value value) const {
    Key found;
    if constexpr (Slots::one_word) {
      found = static_cast<Key>(atomic_swap_if<Order::relaxed>(static_cast<u64*>(keys) + slot,
                                                              ~0ull, Slots::word(key, value)));
    } else {
#if DG_WIDE_SWAP
      if constexpr (whole_pairs && Slots::has_value) {
        u64 old_value = ~0ull;
        found = Mark<Key>::empty;
        atomic_swap_pair_if(key_at(slot), found, old_value, key, value);
        return outcome_of(found, key);
      }
#endif
      found = atomic_swap_if<Order::relaxed>(key_at(slot), Mark<Key>::empty, key);
      if constexpr (Slots::has_value) {
        if (found == Mark<Key>::empty) set_first_value(value_at(slot), value);
      }
    }
    return outcome_of(found, key);
  }

  /// Leaves `mark` in the slot of `key`. One lane of those that erase the same key gets true.
  DG_FN bool withdraw(u64 slot, Key key, Key mark) const {
    if constexpr (Slots::one_word) {
      u64* place = static_cast<u64*>(keys) + slot;
      // Its value does not change while keys are erased.
      const u64 word = atomic_load<Order::relaxed>(place);
      if (static_cast<Key>(word) != key) return false;
      return atomic_swap_if<Order::relaxed>(place, word, Slots::word(mark, ~Value{0})) == word;
    } else {
      if (atomic_swap_if<Order::relaxed>(key_at(slot), key, mark) != key) return false;
      if constexpr (Slots::has_value) atomic_store<Order::relaxed>(value_at(slot), ~Value{0});
      return true;
    }
  }

 private:
  DG_FN static Outcome outcome_of(Key found, Key key) {
    if (found == Mark<Key>::empty) return Outcome::created;
    return found == key ? Outcome::existed : Outcome::refused;
  }

  template <class Word, class Make>
  DG_FN static void change_word(Word* at, const Make& make) {
    for (Word held = atomic_load<Order::relaxed>(at);;) {
      const Word seen = atomic_swap_if<Order::relaxed>(at, held, make(held));
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

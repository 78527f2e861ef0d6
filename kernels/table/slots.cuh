/// Slots of keys and values in memory: how one is taken, changed and given back, each time in one
/// atomic step. Knows neither a probe sequence nor a table's counters.
#pragma once

#include "core/atomic.cuh"
#include "core/outcome.cuh"
#include "core/slot.cuh"
#include "core/tree.cuh"

namespace dg {

template <class KeyType, class ValueType, Layout layout = natural_layout<KeyType, ValueType>>
struct SlotArray {
  using Slots = Slot<KeyType, ValueType, layout>;
  using Key = KeyType;
  using Value = typename Slots::Value;

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

  /// Changes the value of a key that is stored, in one atomic step: rows of a key count in any order, each
  /// once. Float sums of four bytes take subnormal numbers for 0 on GPUs, as their atomics do.
  DG_FN void combine(u64 slot, Value term, Change change) const {
    if constexpr (Slots::one_word)
      change_word<32>(static_cast<u64*>(keys) + slot, term, change);
    else
      change_word<0>(value_at(slot), term, change);
  }

  /// Changes the value of a key that is stored to its lowest common ancestor with a node; as `combine`.
  DG_FN void fold(u64 slot, Value node, const Tree& tree) const {
    if constexpr (Slots::one_word)
      fold_word<32>(static_cast<u64*>(keys) + slot, node, tree);
    else
      fold_word<0>(value_at(slot), node, tree);
  }

  /// As `combine`; by a store where that will do.
  DG_FN void change(u64 slot, Key key, Value value, Change how) const {
    if constexpr (Slots::has_value) {
      if (how.action == OnExisting::keep) return;
      if (how.action == OnExisting::overwrite) return replace(slot, key, value);
      combine(slot, value, how);
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
      found = static_cast<Key>(atomic_swap_if<Order::relaxed>(static_cast<u64*>(keys) + slot, ~0ull,
                                                              Slots::word(key, value)));
    } else {
#if DG_WIDE_SWAP
      if constexpr (Slots::paired && Slots::whole) {
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

  /// As `publish`; where the key is there, its value is changed. Rows of one launch count in any order,
  /// each once, where slots are published whole, and so do sums of integers anywhere: nobody stores the
  /// first, but all add to the -1 that stands there. Elsewhere a launch before brings the keys.
  DG_FN Outcome publish_or_change(u64 slot, Key key, Value value, Change how) const {
    if constexpr (!Slots::whole) {
      if (how.action == OnExisting::sum && how.kind != ValueKind::floating) {
        const Outcome got = publish(slot, key, ~Value{0});
        if (got == Outcome::refused) return got;
        change(slot, key, got == Outcome::created ? value + 1 : value, how);
        return got;
      }
    }
    const Outcome got = publish(slot, key, value);
    if (got == Outcome::existed) change(slot, key, value, how);
    return got;
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

  /// Of a value that is the bits of a word from `shift` on.
  template <u32 shift, class Word>
  DG_FN static void change_word(Word* word, Value term, Change change) {
    if (change.action == OnExisting::sum) {
      if (change.kind != ValueKind::floating)
        return atomic_add<Order::relaxed>(word,
                                          static_cast<Word>(static_cast<Word>(term) << shift));
      // A float of four bytes is one in a longer word, too.
      if constexpr (sizeof(Value) == 8) {
        if (change.spare_bits == 0)
          return atomic_add<Order::relaxed>(reinterpret_cast<double*>(word), as_real<double>(term));
      }
#if DG_GPU
      return atomic_add<Order::relaxed>(reinterpret_cast<float*>(word) + shift / 32,
                                        as_real<float>(static_cast<u32>(term)));
#endif
    }
    replace_by<shift>(word, [&](Value held) { return changed(held, term, change); });
  }

  template <u32 shift, class Word>
  DG_FN static void fold_word(Word* word, Value node, const Tree& tree) {
    replace_by<shift>(word, [&](Value held) { return tree.folded(held, node); });
  }

  /// Replaces a value, that is the bits of a word from `shift` on, by what `make` makes of it.
  template <u32 shift, class Word, class Make>
  DG_FN static void replace_by(Word* word, const Make& make) {
    constexpr Word below = shift == 0 ? 0 : (Word{1} << shift) - 1;
    Word held = atomic_load<Order::relaxed>(word);
    while (true) {
      const Value made = make(static_cast<Value>(held >> shift));
      const Word wanted = static_cast<Word>(static_cast<Word>(made) << shift) | (held & below);
      if (wanted == held) return;
      const Word seen = atomic_swap_if<Order::relaxed>(word, held, wanted);
      if (seen == held) return;
      held = seen;
    }
  }

 private:
  DG_FN static Outcome outcome_of(Key found, Key key) {
    if (found == Mark<Key>::empty) return Outcome::created;
    return found == key ? Outcome::existed : Outcome::refused;
  }

  /// All ones are there already, and are not stored again: another tile may have replaced them by
  /// now, as bucket lists do with the handle of a key that another tile has just created.
  template <class Word>
  DG_FN static void set_first_value(Word* at, Word value) {
    if (value != ~Word{0}) atomic_store<Order::relaxed>(at, value);
  }
};

}  // namespace dg

/// A toy: linear probing of as many slots as it is told, so that it refuses keys long before it is full.
#pragma once

#include "core/atomic.cuh"
#include "core/hash.cuh"
#include "table/table_state.cuh"

namespace dg {

struct ToyStorage {
  void* keys;
  void* values;
  TableState* state;
  u64 slots;
  u64 bound;
  u64 seed;

  DG_FIELDS(keys, values, state, slots, bound, seed)
};

template <class KeyType, class ValueType>
struct Toy {
  using Key = KeyType;
  using Value = typename StoredAs<ValueType>::Type;
  using Storage = ToyStorage;
  static constexpr bool has_value = !same<ValueType, void>;

  Storage at;

  DG_FN Key* key_at(u64 slot) const { return static_cast<Key*>(at.keys) + slot; }
  DG_FN Value* value_at(u64 slot) const { return static_cast<Value*>(at.values) + slot; }

  /// Calls `look(slot)` until it says to stop; by one lane, which tells the others how many it took.
  template <class Tile, class Look>
  DG_FN u64 walk(Tile tile, Key key, const Look& look) const {
    u64 steps = 0;
    if (tile.lane() == 0) {
      const u64 first = mulhi(hash_key(key, at.seed), at.slots);
      while (steps < at.bound && !look((first + steps) % at.slots)) ++steps;
    }
    return tile.shuffle(steps, 0);
  }

  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change change) const {
    u32 outcome = static_cast<u32>(Outcome::refused);
    walk(tile, key, [&](u64 slot) {
      const Key was = atomic_swap_if<Order::relaxed>(key_at(slot), Mark<Key>::empty, key);
      if (was != key && was != Mark<Key>::empty) return false;
      const bool created = was == Mark<Key>::empty;
      outcome = static_cast<u32>(created ? Outcome::created : Outcome::existed);
      if constexpr (has_value) {
        if (created) {
          atomic_store<Order::relaxed>(value_at(slot), value);
        } else if (change.action != OnExisting::keep) {
          Value held = atomic_load<Order::relaxed>(value_at(slot));
          while (true) {
            const Value wanted = changed(held, value, change);
            const Value seen = atomic_swap_if<Order::relaxed>(value_at(slot), held, wanted);
            if (seen == held) break;
            held = seen;
          }
        }
      }
      return true;
    });
    return static_cast<Outcome>(tile.shuffle(outcome, 0));
  }

  template <class Tile>
  DG_FN Found<Value> find(Tile tile, Key key) const {
    u32 found = 0;
    Value value{};
    walk(tile, key, [&](u64 slot) {
      const Key seen = *key_at(slot);
      found = seen == key;
      if constexpr (has_value)
        if (found) value = *value_at(slot);
      return found || seen == Mark<Key>::empty;
    });
    if constexpr (has_value) value = tile.shuffle(value, 0);
    return {tile.shuffle(found, 0) != 0, value};
  }

  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    u32 erased = 0;
    walk(tile, key, [&](u64 slot) {
      const Key was = atomic_swap_if<Order::relaxed>(key_at(slot), key, Mark<Key>::erased);
      erased = was == key;
      return erased || was == Mark<Key>::empty;
    });
    erased = tile.shuffle(erased, 0);
    return {erased, erased};
  }

  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    const u64 steps = walk(tile, key, [&](u64 slot) {
      return *key_at(slot) == key || *key_at(slot) == Mark<Key>::empty;
    });
    return steps < at.bound ? steps + 1 : at.bound;
  }

  DG_FN u64 places() const { return at.slots; }

  DG_FN bool entry(u64 slot, Key& key, Value& value) const {
    key = *key_at(slot);
    if (is_reserved(key)) return false;
    if constexpr (has_value) value = *value_at(slot);
    return true;
  }

  DG_FN void prefetch(Key key) const {
    dg::prefetch(key_at(mulhi(hash_key(key, at.seed), at.slots)));
  }
};

}  // namespace dg

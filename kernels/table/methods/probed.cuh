/// Open addressing as Alcantara's thesis has it (§3.1–3.2): one lane goes from slot to slot, by linear,
/// quadratic or double hashing, and gives up after a bound.
///
/// Invariants
///  * A key takes the first EMPTY slot of its sequence, and no slot becomes EMPTY again while the table lives:
///    erasing leaves ERASED, which inserting never takes. So a search ends at the first EMPTY slot, and equal
///    keys meet.
///  * The value of every slot without a key is all ones.
///  * Launches that insert, erase and read do not overlap.
#pragma once

#include "core/hash_family.cuh"
#include "table/slots.cuh"
#include "table/table_state.cuh"

namespace dg {

/// By value.
struct ProbedStorage {
  HashFunction function;
  void* slots;
  TableState* state;
  u64 slot_count;
  u64 most_probes;  // before a row is refused
  u64 seed;
  u32 exclusive;  // whether it is of the family with XOR
  u32 printed;  // whether it takes the keys themselves, as in the thesis, if these are short enough

  DG_FIELDS(function, slots, state, slot_count, most_probes, seed, exclusive, printed)
};

/// How far probe `i` is from the one before. The thesis' Listing 3.1 adds these up, and its Table 3.2 comes from
/// the listing; its Table 3.1 has formulas of another sequence.
struct LinearSteps {
  DG_FN explicit LinearSteps(u32) {}
  DG_FN u64 step(u64) const { return 1; }
};

struct QuadraticSteps {
  DG_FN explicit QuadraticSteps(u32) {}
  DG_FN u64 step(u64 i) const { return i * i; }
};

struct DoubleSteps {
  u32 jump;
  DG_FN explicit DoubleSteps(u32 bits) : jump(1 + bits % 41) {}
  DG_FN u64 step(u64 i) const { return i * jump; }
};

template <class KeyType, class ValueType, class Steps>
struct Probed {
  using Array = SlotArray<KeyType, ValueType>;
  using Slots = typename Array::Slots;
  using Key = KeyType;
  using Value = typename Slots::Value;
  using Storage = ProbedStorage;
  static constexpr bool has_value = Slots::has_value;

  Storage at;

  DG_FN u64 places() const { return at.slot_count; }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    key = *slots().key_at(place);
    if (is_reserved(key)) return false;
    value = slots().value_in(place);
    return true;
  }

  DG_FN void prefetch(Key key) const { dg::prefetch(slots().key_at(first_slot(bits_of(key)))); }

  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change change) const {
    Outcome outcome = Outcome::refused;
    if (tile.lane() == 0) {
      walk<Access::shared>(key, [&](u64 slot, Key seen, Value) {
        if (seen == key) {
          slots().change(slot, key, value, change);
          outcome = Outcome::existed;
        } else if (seen == Mark<Key>::empty) {
          outcome = slots().publish_or_change(slot, key, value, change);
        }
        return outcome != Outcome::refused;
      });
    }
    return static_cast<Outcome>(tile.shuffle(static_cast<u32>(outcome), 0));
  }

  template <class Tile>
  DG_FN Found<Value> find(Tile, Key key) const {
    Found<Value> found{false, Value{}};
    walk<Access::frozen>(key, [&](u64, Key seen, Value value) {
      if (seen == key) found = {true, value};
      return seen == key || seen == Mark<Key>::empty;
    });
    return found;
  }

  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    u32 erased = 0;
    if (tile.lane() == 0) {
      walk<Access::shared>(key, [&](u64 slot, Key seen, Value) {
        if (seen == key) erased = slots().withdraw(slot, key, Mark<Key>::erased);
        return seen == key || seen == Mark<Key>::empty;
      });
    }
    erased = tile.shuffle(erased, 0);
    return {erased, erased};
  }

  /// Slots that a search reads.
  template <class Tile>
  DG_FN u64 probes(Tile, Key key) const {
    return walk<Access::frozen>(
        key, [&](u64, Key seen, Value) { return seen == key || seen == Mark<Key>::empty; });
  }

 private:
  DG_FN Array slots() const { return Array{at.slots, nullptr}; }

  DG_FN u32 bits_of(Key key) const { return hashed_bits(key, at.seed, at.printed != 0); }

  DG_FN u64 first_slot(u32 bits) const {
    const Family family = at.exclusive ? Family::exclusive_or : Family::multiply;
    return hashed_long(at.function, family, bits, kLargestPrime) % at.slot_count;
  }

  /// Calls `look(slot, key, value)` for the slots of the key's sequence until it returns true; gives how many
  /// it saw. The value is there in frozen tables only.
  template <Access access, class Look>
  DG_FN u64 walk(Key key, const Look& look) const {
    const u32 bits = bits_of(key);
    const Steps steps(bits);
    u64 slot = first_slot(bits);
    for (u64 i = 1;; ++i) {
      Value value{};
      const Key seen = read<access>(slot, value);
      if (look(slot, seen, value) || i >= at.most_probes) return i;
      slot += steps.step(i);
      if (slot >= at.slot_count) slot %= at.slot_count;
    }
  }

  template <Access access>
  DG_FN Key read(u64 slot, [[maybe_unused]] Value& value) const {
    if constexpr (access == Access::shared) {
      return atomic_load<Order::relaxed>(slots().key_at(slot));
    } else if constexpr (Slots::one_word) {
      const u64 word = static_cast<const u64*>(at.slots)[slot];
      value = static_cast<Value>(word >> 32);
      return static_cast<Key>(word);
    } else if constexpr (has_value) {
      const Quarter pair = load_quarter<access, Key>(slots().quarter(slot));
      value = Slots::value(pair, 0);
      return Slots::key(pair, 0);
    } else {
      return *slots().key_at(slot);
    }
  }
};

}  // namespace dg

/// The slots of a node of a chain: how a key or a pair is stored, changed and erased in its place.
///
///   4 + 4 bytes   one compare-and-swap a pair
///   keys alone    one compare-and-swap a key
///   8 + 8 bytes   the key is swapped in, then its value stored, then the pair's bit in the node's auxiliary
///                 word cleared, which says that the pair is ready
///
/// Invariants
///  * A slot goes from EMPTY to a key to ERASED, and back to EMPTY only in a launch that does nothing else. So
///    whoever has seen that no slot before the first EMPTY one has a key, and takes that slot, knows that the
///    key is stored once.
///  * Erasing leaves the value of 8 + 8 bytes where it is: a search that saw the key may still read it.
///  * Whatever has not been written is all ones.
#pragma once

#include "core/outcome.cuh"
#include "core/slot.cuh"

namespace dg {

/// Where a walk along a chain ended: at the key, at the first EMPTY slot, or at the end of a chain that has
/// none.
enum class WalkEnd : u32 { key, gap, full };

/// What a flush of one bucket did.
struct Flushed {
  u32 marks;  // ERASED slots that are free again
  u32 nodes;  // given back
};

/// `StorageType` is the table as kernels get it. `tells_ready`: whether pairs that take more than a swap have bits, in the node's word `auxiliary_word`.
template <class StorageType, class KeyType, class ValueType, u32 auxiliary_word, bool tells_ready>
struct NodeSlots {
  using Slots = Slot<KeyType, ValueType>;
  using Key = KeyType;
  using Value = typename Slots::Value;
  using Unit = typename Slots::Unit;
  using End = WalkEnd;
  using Storage = StorageType;

  Storage at;

  static_assert(!Slots::has_value || Slots::paired);
  static constexpr bool has_value = Slots::has_value;
  static constexpr bool one_word = !has_value || Slots::one_word;
  static constexpr bool has_ready_bits = !one_word && tells_ready;
  static constexpr u32 per_quarter = Slots::per_quarter;

  /// What an EMPTY slot holds.
  static constexpr Unit empty = static_cast<Unit>(~Unit{0});

  /// Where in a quarter a key and the first EMPTY slot stand; `per_quarter` where there is none.
  struct Sight {
    u32 hit;
    u32 gap;
  };

  /// Only `lane` knows the slot and the value.
  struct Stop {
    End end;
    u32 lane;
    u32 slot;
    u32 nodes;  // that were read
    Value value;
    char* node;
  };

  DG_FN static u32* auxiliary_of(char* node) {
    return reinterpret_cast<u32*>(node) + auxiliary_word;
  }
  DG_FN static Unit* slot_of(char* node, u32 slot) {
    return reinterpret_cast<Unit*>(node + slot * Slots::nbytes);
  }
  DG_FN static Value* value_of(char* node, u32 slot) {
    return reinterpret_cast<Value*>(node + slot * Slots::nbytes + sizeof(Key));
  }

  DG_FN static Sight scan(const Quarter& seen, Key key) {
    Sight sight{per_quarter, per_quarter};
    DG_UNROLL
    for (u32 i = per_quarter; i-- > 0;) {
      const Key found = Slots::key(seen, i);
      if (found == key) sight.hit = i;
      if (found == Mark<Key>::empty) sight.gap = i;
    }
    return sight;
  }

  DG_FN static Value value_at(const Quarter& seen, u32 index) {
    if constexpr (has_value)
      return Slots::value_at(seen, index);
    else
      return {};
  }

  /// One lane's value for all lanes.
  template <class Tile>
  DG_FN static Value shared_value(Tile tile, Value value, u32 source) {
    if constexpr (has_value)
      return tile.shuffle(value, source);
    else
      return {};
  }

  /// What a slot holds as one word; of 8 + 8 bytes the key.
  DG_FN static Unit unit_of(Key key, [[maybe_unused]] Value value) {
    if constexpr (Slots::one_word)
      return Slots::word(key, value);
    else
      return key;
  }

  DG_FN static Key key_in(Unit unit) { return static_cast<Key>(unit); }

  /// Of 8 + 8 bytes: whether the pair's value is there. What was stored before is seen after.
  DG_FN static bool ready(char* node, u32 slot) {
    return (atomic_load<Order::acquire>(auxiliary_of(node)) >> slot & 1u) == 0;
  }

  /// Stores a pair where a slot was seen EMPTY; later: another took the slot. `watched`: others may want to
  /// know during this launch when the value is there.
  DG_FN static Outcome claim(char* node, u32 slot, Key key, Value value, bool watched) {
    if (atomic_swap_if<Order::relaxed>(slot_of(node, slot), empty, unit_of(key, value)) != empty)
      return Outcome::later;
    publish(node, slot, value, watched);
    return Outcome::created;
  }

  /// What is left to do where the key has been swapped in.
  DG_FN static void publish([[maybe_unused]] char* node, [[maybe_unused]] u32 slot,
                            [[maybe_unused]] Value value, [[maybe_unused]] bool watched) {
    if constexpr (!one_word) atomic_store<Order::relaxed>(value_of(node, slot), value);
    if constexpr (has_ready_bits) {
      // Nobody else changes this bit, so a difference clears it.
      const u32 difference = 0u - (1u << slot);
      if (watched)
        atomic_fetch_add<Order::release>(auxiliary_of(node), difference);
      else
        atomic_add<Order::relaxed>(auxiliary_of(node), difference);
    }
  }

  /// Changes the value of a key that was seen with the value `held`; later: look again. `amid` erases
  /// and searches, or where keys are only inserted.
  template <bool amid>
  DG_FN static Outcome change(char* node, u32 slot, Key key, [[maybe_unused]] Value held,
                              [[maybe_unused]] Value value, [[maybe_unused]] Change how) {
    if constexpr (!has_value) {
      return Outcome::existed;
    } else if constexpr (Slots::one_word) {
      if (how.action == OnExisting::keep) return Outcome::existed;
      u64* const at = slot_of(node, slot);
      if (!amid && how.action == OnExisting::overwrite) {
        atomic_store<Order::relaxed>(at, Slots::word(key, value));
        return Outcome::existed;
      }
      if (!amid && how.action == OnExisting::sum && how.kind != ValueKind::floating) {
        atomic_add<Order::relaxed>(at, static_cast<u64>(value) << 32);
        return Outcome::existed;
      }
      u64 seen = Slots::word(key, held);
      while (true) {
        const u64 wanted = Slots::word(key, changed(static_cast<Value>(seen >> 32), value, how));
        const u64 found = wanted == seen ? seen : atomic_swap_if<Order::relaxed>(at, seen, wanted);
        if (found == seen) return Outcome::existed;
        if (key_in(found) != key) return Outcome::later;
        seen = found;
      }
    } else {
      if (how.action == OnExisting::keep && !amid) return Outcome::existed;
      if (!ready(node, slot)) return Outcome::later;
      Value* const at = value_of(node, slot);
      if (how.action == OnExisting::overwrite) {
        atomic_store<Order::relaxed>(at, value);
      } else if (how.action != OnExisting::keep) {
        Value seen = atomic_load<Order::relaxed>(at);
        while (true) {
          const Value wanted = changed(seen, value, how);
          const Value found =
              wanted == seen ? seen : atomic_swap_if<Order::relaxed>(at, seen, wanted);
          if (found == seen) break;
          seen = found;
        }
      }
      return Outcome::existed;
    }
  }

  /// Marks a key that was seen with the value `held`, whatever value it has by now; false: it is marked
  /// already.
  DG_FN static bool withdraw(char* node, u32 slot, Key key, Value held) {
    Unit* const at = slot_of(node, slot);
    Unit seen = unit_of(key, held);
    while (true) {
      const Unit found = atomic_swap_if<Order::relaxed>(at, seen, unit_of(Mark<Key>::erased, held));
      if (found == seen) return true;
      if (key_in(found) != key) return false;
      seen = found;
    }
  }

  /// What a slot holds; nobody else works there.
  DG_FN static void get(char* node, u32 slot, Key& key, [[maybe_unused]] Value& value) {
    if constexpr (Slots::one_word) {
      const u64 word = *slot_of(node, slot);
      key = static_cast<Key>(word);
      value = static_cast<Value>(word >> 32);
    } else {
      key = *slot_of(node, slot);
      if constexpr (has_value) value = *value_of(node, slot);
    }
  }

  /// Stores what a slot holds; nobody else works there.
  DG_FN static void put(char* node, u32 slot, Key key, Value value) {
    atomic_store<Order::relaxed>(slot_of(node, slot), unit_of(key, value));
    if constexpr (!one_word) atomic_store<Order::relaxed>(value_of(node, slot), value);
  }

  /// Makes a slot EMPTY; nobody else works there.
  DG_FN static void wipe(char* node, u32 slot) {
    atomic_store<Order::relaxed>(slot_of(node, slot), empty);
    if constexpr (!one_word)
      atomic_store<Order::relaxed>(value_of(node, slot), static_cast<Value>(~Value{0}));
  }
};

}  // namespace dg

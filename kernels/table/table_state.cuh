/// The counters of a table in device memory, and the slots of the two keys that no slot of a table can
/// hold.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "core/outcome.cuh"
#include "core/slot.cuh"

namespace dg {

/// One for each table of a method.
struct TableState {
  u64 occupied;  // keys stored, those in the side slots included; of lists, their values
  u64 erased;    // marks that erased keys left
  u64 pending;   // rows that found no place since Python last set this to 0
  u64 links;     // the method's own: slabs, buckets, … taken; of mixed batches, see `op_counts`
  u64 side_present[2];  // 1 where the key whose bits are EMPTY, ERASED is stored
  u64 side_value
      [2];  // their values; all ones where there is none; see also SideRoom of device/view.cuh

  DG_FIELDS(occupied, erased, pending, links, side_present, side_value)
};

/// Keys with the bits of a mark.
template <class Key>
DG_FN bool is_reserved(Key key) {
  return key >= Mark<Key>::erased;
}

/// The two keys that tables cannot hold among others, by one lane.
template <class KeyType, class ValueType>
struct SideSlots {
  using Key = KeyType;
  using Value = typename StoredAs<ValueType>::Type;
  static constexpr bool has_value = !same<ValueType, void>;

  TableState* state;

  DG_FN static u32 index_of(Key key) { return key == Mark<Key>::empty ? 0 : 1; }

  DG_FN bool holds(Key key) const {
    return atomic_load<Order::relaxed>(&state->side_present[index_of(key)]) != 0;
  }

  DG_FN Value value_of(Key key) const {
    if constexpr (has_value)
      return static_cast<Value>(atomic_load<Order::relaxed>(&state->side_value[index_of(key)]));
    else
      return {};
  }

  /// While no launch reads: whoever brings the key first fixes nothing but that it is there, and every
  /// row then changes the value in its turn.
  DG_FN Outcome insert(Key key, [[maybe_unused]] Value value,
                       [[maybe_unused]] Change change) const {
    const u32 index = index_of(key);
    const u64 was = atomic_swap_if<Order::relaxed>(&state->side_present[index], 0ull, 2ull);
    const bool created = was == 0;
    if constexpr (has_value) {
      u64* at = &state->side_value[index];
      if (created) {
        atomic_store<Order::relaxed>(at, static_cast<u64>(value));
        atomic_swap_if<Order::acquire_release>(&state->side_present[index], 2ull, 1ull);
      } else if (change.action != OnExisting::keep) {
        while (atomic_load<Order::acquire>(&state->side_present[index]) != 1) {
        }
        u64 held = atomic_load<Order::relaxed>(at);
        while (true) {
          const u64 wanted = static_cast<u64>(changed(static_cast<Value>(held), value, change));
          const u64 seen = atomic_swap_if<Order::relaxed>(at, held, wanted);
          if (seen == held) break;
          held = seen;
        }
      }
    } else if (created) {
      atomic_store<Order::relaxed>(&state->side_present[index], 1ull);
    }
    return created ? Outcome::created : Outcome::existed;
  }

  DG_FN bool erase(Key key) const {
    const u32 index = index_of(key);
    const bool erased =
        atomic_swap_if<Order::relaxed>(&state->side_present[index], 1ull, 0ull) == 1;
    if (erased) atomic_store<Order::relaxed>(&state->side_value[index], ~0ull);
    return erased;
  }
};

/// What a search found; the same on all lanes.
template <class Value>
struct Found {
  bool found;
  Value value;
};

/// What became of a key that was to be removed, and how many entries of it there were.
struct Removed {
  u32 erased;
  u32 left_marks;
};

}  // namespace dg

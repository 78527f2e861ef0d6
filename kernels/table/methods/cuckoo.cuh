/// Cuckoo hashing with a stash (Alcantara's thesis, ch. 6): each key stands in one of the two to five buckets
/// to which its functions point, of one slot each, or of eight as in the thesis' outlook; or in a small stash.
///
/// Invariants
///  * A key is in hand of one lane or stands in one slot. What a lane cannot place is lost with the table,
///    so that Python inserts into tables that nobody sees yet. Equal keys must not meet in one: Python drops
///    them, or finds out afterwards.
///  * No slot becomes EMPTY while keys are stored. So whatever stands in the bucket of a function, or in the
///    stash, found all the key's buckets before it full, and until keys are erased a search ends at the first
///    bucket with an EMPTY slot.
///  * The value of every slot without a key is all ones.
///  * Launches that insert, erase and read do not overlap.
#pragma once

#include "core/hash_family.cuh"
#include "table/slots.cuh"
#include "table/table_state.cuh"

namespace dg {

inline constexpr u32 kCuckooFunctions = 5;  // at most
inline constexpr u32 kLookUp = 32;          // exchanges between two looks at how others do

/// By value.
struct CuckooStorage {
  void* slots;
  void* stash;
  TableState* state;  // `links` counts what is in the stash
  u64* counts;        // exchanges of all inserts, and the keys that they stored
  u64 seed;
  u32 buckets;      // that functions point to
  u32 bucket;       // slots of each; a power of two
  u32 functions;    // of a key
  u32 stash_slots;  // or none
  u32 most_swaps;   // before what is in hand goes to the stash
  u32 exclusive;    // whether functions are of the family with XOR
  u32 printed;  // whether they take the keys themselves, as in the thesis, if these are short enough
  u32 many;     // whether there are too many buckets for the thesis' smaller prime
  u32 holes;    // whether keys were erased
  // Functions in their order, and behind them the stash's.
  u32 a[kCuckooFunctions + 1];
  u32 b[kCuckooFunctions + 1];

  DG_FIELDS(slots, stash, state, counts, seed, buckets, bucket, functions, stash_slots, most_swaps,
            exclusive, printed, many, holes, a, b)
};

/// Slots whose pairs are exchanged as a whole: in one atomic step where they are one word. Pairs of 8 + 8 bytes
/// are too wide for that on most GPUs, so a lane marks the key as taken, and then nobody else works at the slot
/// until it stores another one.
template <class KeyType, class ValueType>
struct SwapSlots : SlotArray<KeyType, ValueType> {
  using Own = SlotArray<KeyType, ValueType>;
  using typename Own::Key;
  using typename Own::Slots;
  using typename Own::Value;
  static constexpr Key kTaken = Mark<Key>::erased;

  DG_FN u64* word_at(u64 slot) const { return static_cast<u64*>(this->keys) + slot; }

  /// The key in a slot, and its value where that comes with it; `kTaken` of a pair that a lane works at.
  template <Access access>
  DG_FN Key read(u64 slot, [[maybe_unused]] Value& value) const {
    if constexpr (Slots::one_word) {
      const u64 word = load<access>(word_at(slot));
      value = static_cast<Value>(word >> 32);
      return static_cast<Key>(word);
    } else if constexpr (Slots::has_value && access == Access::frozen) {
      const Quarter pair = load_quarter<access, Key>(this->quarter(slot));
      value = Slots::value(pair, 0);
      return Slots::key(pair, 0);
    } else {
      return load<access>(this->key_at(slot));
    }
  }

  /// Stores a pair, and gives the one that stood there.
  DG_FN void swap(u64 slot, Key& key, [[maybe_unused]] Value& value) const {
    if constexpr (Slots::one_word) {
      const u64 held = atomic_exchange<Order::relaxed>(word_at(slot), Slots::word(key, value));
      key = static_cast<Key>(held);
      value = static_cast<Value>(held >> 32);
    } else if constexpr (!Slots::has_value) {
      key = atomic_exchange<Order::relaxed>(this->key_at(slot), key);
    } else {
      // All of it within the loop, so that lanes of a warp that wait hold up none that has the slot.
      for (u32 round = 0;; back_off(round++)) {
        const Key held = atomic_exchange<Order::acquire>(this->key_at(slot), kTaken);
        if (held == kTaken) continue;
        const Value kept = atomic_load<Order::relaxed>(this->value_at(slot));
        settle(slot, key, value);
        key = held;
        value = kept;
        return;
      }
    }
  }

  /// Stores a pair in an EMPTY slot; false if it is not.
  DG_FN bool take(u64 slot, Key key, [[maybe_unused]] Value value) const {
    if constexpr (Slots::one_word) {
      return atomic_swap_if<Order::relaxed>(word_at(slot), ~0ull, Slots::word(key, value)) == ~0ull;
    } else {
      constexpr Key empty = Mark<Key>::empty;
      if constexpr (!Slots::has_value)
        return atomic_swap_if<Order::relaxed>(this->key_at(slot), empty, key) == empty;
      if (atomic_swap_if<Order::acquire>(this->key_at(slot), empty, kTaken) != empty) return false;
      settle(slot, key, value);
      return true;
    }
  }

 private:
  DG_FN void settle(u64 slot, Key key, [[maybe_unused]] Value value) const {
    if constexpr (Slots::has_value && !Slots::one_word)
      atomic_store<Order::relaxed>(this->value_at(slot), value);
    atomic_store<Order::release>(this->key_at(slot), key);
  }

  template <Access access, class Word>
  DG_FN static Word load(const Word* from) {
    if constexpr (access == Access::shared)
      return atomic_load<Order::relaxed>(from);
    else
      return *from;
  }
};

/// What became of a key that was to be stored, and how often keys changed places for it.
struct Placed {
  bool stored;
  u32 swaps;
};

template <class KeyType, class ValueType>
struct Cuckoo {
  using Array = SwapSlots<KeyType, ValueType>;
  using Slots = typename Array::Slots;
  using Key = KeyType;
  using Value = typename Slots::Value;
  using Storage = CuckooStorage;
  static constexpr bool has_value = Slots::has_value;

  Storage at;

  DG_FN Array slots() const { return {{at.slots, nullptr}}; }
  DG_FN Array stash() const { return {{at.stash, nullptr}}; }
  DG_FN u64 table_slots() const { return u64{at.buckets} * at.bucket; }

  DG_FN u64 places() const { return table_slots() + at.stash_slots; }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    const Array array = array_of(place);
    key = array.template read<Access::frozen>(place, value);
    return !is_reserved(key);
  }

  DG_FN void set_value(u64 place, Key key, Value value) const
    requires(Slots::has_value)
  {
    const Array array = array_of(place);
    array.replace(place, key, value);
  }

  DG_FN void prefetch(Key key) const {
    dg::prefetch(slots().key_at(u64{bucket_of(bits_of(key), 0)} * at.bucket));
  }

  /// Stores a key that is not stored, by one lane. Where this fails, the table has lost a key: because there
  /// is no place, or another lane has failed, or has brought the same key, which then comes back.
  DG_FN Placed place(Key key, Value value) const {
    Bits bits = bits_of(key);
    if (at.bucket > 1 && take_first(bits, key, value)) return {true, 1};
    u32 bucket = bucket_of(bits, 0);
    for (u32 swaps = 1;; ++swaps) {
      const Key given = key;
      slots().swap(u64{bucket} * at.bucket + evicted(key, swaps), key, value);
      if (key == Mark<Key>::empty) return {true, swaps};
      if (key == given || (swaps % kLookUp == 0 && failed())) return {false, swaps};
      bits = bits_of(key);
      if (swaps >= at.most_swaps) return {settle(bits, key, value), swaps + 1};
      bucket = bucket_after(bits, bucket);
      if (at.bucket > 1 && take_in(bucket, key, value)) return {true, swaps + 1};
    }
  }

  /// Whether the launch has left some key without a place.
  DG_FN bool failed() const { return atomic_load<Order::relaxed>(&at.state->pending) != 0; }

  /// Whether a key stands in this place, and nowhere else before it.
  DG_FN bool alone(u64 place, Key key) const {
    const Where where = search<Access::frozen>(key);
    return where.found && where.slot + (where.aside ? table_slots() : 0) == place;
  }

  /// Changes the value of a key that is stored, and refuses others.
  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change change) const {
    const Where where = search<Access::shared>(key);
    if (!where.found) return Outcome::refused;
    if (tile.lane() == 0) where.array.change(where.slot, key, value, change);
    return Outcome::existed;
  }

  template <class Tile>
  DG_FN Found<Value> find(Tile, Key key) const {
    const Where where = search<Access::frozen>(key);
    return {where.found, where.value};
  }

  /// Leaves an EMPTY slot.
  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    u32 erased = 0;
    if (tile.lane() == 0) {
      const Where where = search<Access::shared>(key);
      erased = where.found && where.array.withdraw(where.slot, key, Mark<Key>::empty);
      if (erased && where.aside) atomic_add<Order::relaxed>(&at.state->links, ~0ull);
    }
    return {tile.shuffle(erased, 0), 0};
  }

  /// Buckets that a search reads, the stash included.
  template <class Tile>
  DG_FN u64 probes(Tile, Key key) const {
    return search<Access::frozen>(key).reads;
  }

 private:
  /// Where the place is, and its slot there.
  DG_FN Array array_of(u64& place) const {
    if (place < table_slots()) return slots();
    place -= table_slots();
    return stash();
  }

  /// What functions take of a key. All multiples of a prime would meet in one place, whatever the functions
  /// are: so keys are mixed that are too long, or that the thesis' functions failed with. Then neighbouring
  /// functions take other halves, so that no two keys agree in all of them.
  struct Bits {
    u32 even;
    u32 odd;
  };

  DG_FN Bits bits_of(Key key) const {
    if (sizeof(Key) == 4 && at.printed) return {static_cast<u32>(key), static_cast<u32>(key)};
    const u64 hash = hash_key(key, at.seed);
    return {static_cast<u32>(hash >> 32), static_cast<u32>(hash)};
  }

  /// By the thesis' prime of each family; a table that is not much smaller than it needs a larger one.
  DG_FN u32 hash_of(Bits bits, u32 index) const {
    const HashFunction function{at.a[index], at.b[index]};
    const u32 mine = index % 2 ? bits.odd : bits.even;
    if (at.exclusive) return hashed_short(function, Family::exclusive_or, mine, kLargestPrime);
    if (at.many) return hashed_short(function, Family::multiply, mine, kLargestPrime);
    return hashed_short(function, Family::multiply, mine, kCuckooPrime);
  }

  DG_FN u32 bucket_of(Bits bits, u32 index) const { return hash_of(bits, index) % at.buckets; }

  /// The bucket of the function behind the first that points to `from`.
  DG_FN u32 bucket_after(Bits bits, u32 from) const {
    const u32 first = bucket_of(bits, 0);
    u32 after = first;
    bool matched = first == from, done = false;
    DG_UNROLL
    for (u32 i = 1; i < kCuckooFunctions; ++i) {
      if (i >= at.functions || done) break;
      const u32 bucket = bucket_of(bits, i);
      if (matched) after = bucket;
      done = matched;
      matched = bucket == from;
    }
    return after;
  }

  /// Which key of a full bucket gives way: any, and another one next time.
  DG_FN u32 evicted(Key key, u32 swaps) const {
    if (at.bucket == 1) return 0;
    return static_cast<u32>(mix(static_cast<u64>(key) + swaps)) & (at.bucket - 1);
  }

  DG_FN bool take_in(u32 bucket, Key key, Value value) const {
    const u64 first = u64{bucket} * at.bucket;
    for (u32 i = 0; i < at.bucket; ++i) {
      Value other{};
      if (slots().template read<Access::shared>(first + i, other) == Mark<Key>::empty &&
          slots().take(first + i, key, value))
        return true;
    }
    return false;
  }

  DG_FN bool take_first(Bits bits, Key key, Value value) const {
    DG_UNROLL
    for (u32 i = 0; i < kCuckooFunctions; ++i) {
      if (i >= at.functions) break;
      if (take_in(bucket_of(bits, i), key, value)) return true;
    }
    return false;
  }

  /// Into the stash, of which each key has one slot. A search asks there only when all buckets are
  /// full, so an EMPTY slot in one of them comes first.
  DG_FN bool settle(Bits bits, Key key, Value value) const {
    if (take_first(bits, key, value)) return true;
    if (at.stash_slots == 0) return false;
    const bool taken = stash().take(stash_slot(bits), key, value);
    if (taken) atomic_add<Order::relaxed>(&at.state->links, 1ull);
    return taken;
  }

  DG_FN u32 stash_slot(Bits bits) const { return hash_of(bits, kCuckooFunctions) % at.stash_slots; }

  struct Where {
    Array array;
    u64 slot;
    Value value;  // if it comes with the key
    u32 reads;
    bool found;
    bool aside;
  };

  template <Access access>
  DG_FN Where search(Key key) const {
    const Bits bits = bits_of(key);
    Where where{slots(), 0, {}, 0, false, false};
    DG_UNROLL
    for (u32 i = 0; i < kCuckooFunctions; ++i) {
      if (i >= at.functions) break;
      ++where.reads;
      where.slot = u64{bucket_of(bits, i)} * at.bucket;
      bool gap = false;
      for (const u64 end = where.slot + at.bucket; where.slot < end; ++where.slot) {
        const Key seen = where.array.template read<access>(where.slot, where.value);
        if (seen == key) {
          where.found = true;
          return where;
        }
        gap |= seen == Mark<Key>::empty;
      }
      if (gap && !at.holes) return where;
    }
    const u64 aside =
        access == Access::shared ? atomic_load<Order::relaxed>(&at.state->links) : at.state->links;
    if (aside == 0) return where;
    ++where.reads;
    where.array = stash();
    where.slot = stash_slot(bits);
    where.aside = true;
    where.found = where.array.template read<access>(where.slot, where.value) == key;
    return where;
  }
};

}  // namespace dg

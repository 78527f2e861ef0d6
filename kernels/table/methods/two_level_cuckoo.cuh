/// Two-level cuckoo hashing (Alcantara's thesis, ch. 5): sets and maps, and maps of several values a key
/// (§5.3). A first function deals the keys to buckets; of each, three subtables with a function each hold
/// every key in one of its three slots. Tables are built at once and never change: launch/methods/
/// two_level_cuckoo.cuh does that.
#pragma once

#include "core/hash_family.cuh"
#include "table/slots.cuh"
#include "table/table_state.cuh"

namespace dg {

inline constexpr u32 kSubtables = 3;
/// Slots of a subtable: so many where a bucket is made for 1,024 keys, and half of them for 512.
inline constexpr u32 kMostSubtableSlots = 384;
/// A place in a subtable takes so many bits.
inline constexpr u32 kPlaceBits = 9;
static_assert(kMostSubtableSlots <= 1u << kPlaceBits);

/// By value.
struct TwoLevelCuckooStorage {
  HashFunction deal;  // to buckets
  void* keys;         // the slots, or their keys where tables have several values a key
  u64* lists;        // of several values: of each slot, where its first stands, and above, how many
  void* values;      // of several values: all of them, bucket by bucket
  u64* list_starts;  // of several values: where each bucket's begin
  u32* seeds;        // a `BucketSeed` for each bucket
  TableState* state;
  u64 seed;
  u64 buckets;
  u32 subtable_slots;
  u32 printed;  // 1: keys of four bytes are hashed as they are, as the thesis prints it
  u32 wide;     // 1: too many buckets for the thesis' prime

  DG_FIELDS(deal, keys, lists, values, list_starts, seeds, state, seed, buckets, subtable_slots,
            printed, wide)
};

/// What a bucket keeps of how it was built.
struct BucketSeed {
  u32 bits;

  DG_FN static BucketSeed of(u32 seed, u32 iterations, u32 attempts) {
    return {seed | iterations << 16 | attempts << 24};
  }
  DG_FN u32 seed() const { return bits & 0xffffu; }
};

/// The function of a subtable: all of them follow from 16 bits.
DG_FN HashFunction subtable_function(u32 seed, u32 subtable) {
  constexpr u32 words[2 * kSubtables] = {0xffff, 0xcba9, 0x7531, 0xbeef, 0xd9f1, 0x337a};
  return {seed ^ words[2 * subtable], seed ^ words[2 * subtable + 1]};
}

/// What the two levels hash: the key itself where `hashed_bits` would give it, or else the two halves of one
/// hash. With one half for both, four keys that agree in it could never stand in a bucket together.
struct LevelBits {
  u32 deal;
  u32 place;
};

/// What tables of one value and of several values a key share.
template <class KeyType, class SlotValue>
struct TwoLevelBuckets {
  using Array = SlotArray<KeyType, SlotValue>;
  using Slots = typename Array::Slots;
  using Key = KeyType;
  using Storage = TwoLevelCuckooStorage;

  Storage at;

  DG_FN Array slots() const { return Array{at.keys, nullptr}; }
  DG_FN u32 bucket_slots() const { return kSubtables * at.subtable_slots; }
  DG_FN u64 places() const { return at.buckets * bucket_slots(); }

  DG_FN LevelBits bits_of(Key key) const {
    const u32 upper = hashed_bits(key, at.seed, at.printed != 0);
    if (sizeof(Key) == 4 && at.printed) return {upper, upper};
    return {upper, static_cast<u32>(hash_key(key, at.seed))};
  }

  DG_FN u32 bucket_of(LevelBits bits) const {
    const u32 hashed = at.wide ? hashed_long(at.deal, Family::multiply, bits.deal, kLargestPrime)
                               : hashed_short(at.deal, Family::multiply, bits.deal, kBucketPrime);
    return hashed % static_cast<u32>(at.buckets);
  }

  /// In the subtable; one division by a constant serves both sizes.
  DG_FN u32 place_of(LevelBits bits, u32 seed, u32 subtable) const {
    const HashFunction function = subtable_function(seed, subtable);
    const u32 place =
        hashed_short(function, Family::multiply, bits.place, kBucketPrime) % kMostSubtableSlots;
    return place < at.subtable_slots ? place : place - kMostSubtableSlots / 2;
  }

  DG_FN void prefetch(Key key) const {
    const LevelBits bits = bits_of(key);
    const u32 bucket = bucket_of(bits);
    dg::prefetch(slots().key_at(first_slot(bucket) +
                                place_of(bits, BucketSeed{at.seeds[bucket]}.seed(), 0)));
  }

  /// Reads of the search for a key: the bucket's seed, and slots.
  template <class Tile>
  DG_FN u64 probes(Tile, Key key) const {
    u32 slots_read = 0;
    search(key, slots_read);
    return 1 + slots_read;
  }

  DG_FN u64 first_slot(u32 bucket) const { return u64{bucket} * bucket_slots(); }

 protected:
  /// Where a key stands, and in which bucket that is.
  struct Stand {
    bool found;
    u32 bucket;
    u64 slot;
  };

  DG_FN Stand search(Key key) const {
    u32 slots_read = 0;
    return search(key, slots_read);
  }

 private:
  DG_FN Stand search(Key key, u32& slots_read) const {
    const LevelBits bits = bits_of(key);
    const u32 bucket = bucket_of(bits);
    const u32 seed = BucketSeed{at.seeds[bucket]}.seed();
    u64 slot = first_slot(bucket);
    DG_UNROLL
    for (u32 subtable = 0; subtable < kSubtables; ++subtable) {
      const u64 place = slot + place_of(bits, seed, subtable);
      ++slots_read;
      if (*slots().key_at(place) == key) return {true, bucket, place};
      slot += at.subtable_slots;
    }
    return {false, bucket, 0};
  }
};

/// A slot has a key, and its value if there are any.
template <class KeyType, class ValueType>
struct TwoLevelCuckoo : TwoLevelBuckets<KeyType, ValueType> {
  using Base = TwoLevelBuckets<KeyType, ValueType>;
  using Key = KeyType;
  using Value = typename Base::Slots::Value;
  static constexpr bool has_value = Base::Slots::has_value;
  static constexpr bool has_lists = false;

  template <class Tile>
  DG_FN Found<Value> find(Tile, Key key) const {
    const auto stand = this->search(key);
    if (!stand.found) return {false, Value{}};
    return {true, this->slots().value_in(stand.slot)};
  }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    key = *this->slots().key_at(place);
    if (is_reserved(key)) return false;
    value = this->slots().value_in(place);
    return true;
  }

  DG_FN void set_value(u64 place, Key key, Value value) const
    requires(has_value)
  {
    this->slots().replace(place, key, value);
  }
};

/// A slot has a key, and says where the values of it stand, one behind the other.
template <class KeyType, class ValueType>
struct TwoLevelCuckooLists : TwoLevelBuckets<KeyType, void> {
  using Base = TwoLevelBuckets<KeyType, void>;
  using Key = KeyType;
  using Value = ValueType;
  static constexpr bool has_value = true;
  static constexpr bool has_lists = true;

  DG_FN static u64 list_of(u32 first, u32 count) { return u64{count} << 32 | first; }

  template <class Tile>
  DG_FN u64 count(Tile, Key key) const {
    const auto stand = this->search(key);
    return stand.found ? this->at.lists[stand.slot] >> 32 : 0;
  }

  template <class Tile>
  DG_FN void gather(Tile tile, Key key, Value* to) const {
    const auto stand = this->search(key);
    if (!stand.found) return;
    const u64 list = this->at.lists[stand.slot];
    const Value* from = static_cast<const Value*>(this->at.values) +
                        this->at.list_starts[stand.bucket] + static_cast<u32>(list);
    for (u64 each = tile.lane(); each < list >> 32; each += tile.size) to[each] = from[each];
  }

  /// A key once, and no value.
  DG_FN bool entry(u64 place, Key& key, Value&) const {
    key = *this->slots().key_at(place);
    return !is_reserved(key);
  }
};

}  // namespace dg

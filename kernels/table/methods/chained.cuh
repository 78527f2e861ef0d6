/// Chaining as Alcantara's thesis has it (ch. 4): entries sorted by bucket, and where each bucket ends. Built at
/// once; several entries may have the same key, and stay in the order in which they came.
#pragma once

#include "core/hash_family.cuh"
#include "table/slots.cuh"
#include "table/table_state.cuh"

namespace dg {

/// By value.
struct ChainedStorage {
  HashFunction function;
  void* entries;
  u32* ends;  // of each bucket among the entries; a bucket begins where the one before it ends
  TableState* state;
  u64 stored;  // entries
  u64 buckets;
  u64 seed;
  u32 printed;  // whether the function takes the keys themselves, as in the thesis, if these are short enough

  DG_FIELDS(function, entries, ends, state, stored, buckets, seed, printed)
};

/// What tables of one value and of several values a key share.
template <class KeyType, class ValueType>
struct ChainedBuckets {
  using Array = SlotArray<KeyType, ValueType>;
  using Slots = typename Array::Slots;
  using Key = KeyType;
  using Value = typename Slots::Value;
  using Storage = ChainedStorage;
  static constexpr bool has_value = Slots::has_value;

  Storage at;

  DG_FN u64 places() const { return at.stored; }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    key = *entries().key_at(place);
    value = entries().value_in(place);
    return true;
  }

  DG_FN void prefetch(Key key) const { dg::prefetch(at.ends + bucket_of(key)); }

  DG_FN u32 bucket_of(Key key) const {
    const u32 bits = hashed_bits(key, at.seed, at.printed != 0);
    return static_cast<u32>(hashed_long(at.function, Family::multiply, bits, kLargestPrime) %
                            at.buckets);
  }

 protected:
  struct Bucket {
    u32 first;
    u32 end;
  };

  DG_FN Array entries() const { return Array{at.entries, nullptr}; }

  DG_FN Bucket bucket_for(Key key) const {
    const u32 bucket = bucket_of(key);
    return {bucket == 0 ? 0 : at.ends[bucket - 1], at.ends[bucket]};
  }
};

template <class KeyType, class ValueType>
struct Chained : ChainedBuckets<KeyType, ValueType> {
  using Buckets = ChainedBuckets<KeyType, ValueType>;
  using typename Buckets::Key;
  using typename Buckets::Value;

  template <class Tile>
  DG_FN Found<Value> find(Tile, Key key) const {
    const auto bucket = this->bucket_for(key);
    for (u32 place = bucket.first; place < bucket.end; ++place)
      if (*this->entries().key_at(place) == key) return {true, this->entries().value_in(place)};
    return {false, Value{}};
  }

  /// Entries that a search reads.
  template <class Tile>
  DG_FN u64 probes(Tile, Key key) const {
    const auto bucket = this->bucket_for(key);
    for (u32 place = bucket.first; place < bucket.end; ++place)
      if (*this->entries().key_at(place) == key) return place - bucket.first + 1;
    return bucket.end - bucket.first;
  }
};

template <class KeyType, class ValueType>
struct ChainedLists : ChainedBuckets<KeyType, ValueType> {
  using Buckets = ChainedBuckets<KeyType, ValueType>;
  using typename Buckets::Key;
  using typename Buckets::Value;

  template <class Tile>
  DG_FN u64 count(Tile tile, Key key) const {
    return visit(tile, key, [](u32, u64) {});
  }

  template <class Tile>
  DG_FN void gather(Tile tile, Key key, Value* to) const {
    visit(tile, key, [&](u32 place, u64 rank) { to[rank] = this->entries().value_in(place); });
  }

  /// Entries that a search reads: all of the bucket.
  template <class Tile>
  DG_FN u64 probes(Tile, Key key) const {
    const auto bucket = this->bucket_for(key);
    return bucket.end - bucket.first;
  }

 private:
  /// Calls `each(place, values before)` for the entries of the key, each by one lane; gives their number.
  template <class Tile, class Each>
  DG_FN u64 visit(Tile tile, Key key, const Each& each) const {
    const auto bucket = this->bucket_for(key);
    u64 values = 0;
    for (u32 first = bucket.first; first < bucket.end; first += Tile::size) {
      const u32 place = first + tile.lane();
      const bool hit = place < bucket.end && *this->entries().key_at(place) == key;
      const u32 hits = tile.ballot(hit);
      if (hit) each(place, values + count_ones(hits & ones_below(tile.lane())));
      values += count_ones(hits);
    }
    return values;
  }
};

}  // namespace dg

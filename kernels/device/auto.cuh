/// The tables of method `auto` as kernels/launch/verbs.cuh has those of other methods: one key by one tile.
#pragma once

#include "launch/verbs.cuh"
#include "table/open.cuh"

namespace dg::device {

template <class KeyType, class ValueType>
struct Auto : OpenTable<KeyType, ValueType> {
  using Open = OpenTable<KeyType, ValueType>;
  using Open::at;
  using typename Open::Key;
  using typename Open::Slots;
  using typename Open::Value;
  using Storage = OpenStorage;
  static constexpr bool has_value = Slots::has_value;
  /// Reserved keys are brought to this table like others.
  static constexpr bool takes_reserved = true;

  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change) const {
    return Open::insert(tile, key, value, Open::unlimited).outcome;
  }

  /// Ends at the first bucket that has an EMPTY slot, or that no such key has passed.
  template <class Tile>
  DG_FN Found<Value> find(Tile tile, Key key) const {
    if (is_reserved(key)) {
      const auto stop = this->find_aside(key);
      return {stop.end == Open::End::key, stop.value};
    }
    constexpr u32 steps = Tile::size < kQuarters ? kQuarters / Tile::size : 1;
    for (auto probe = this->template probe_of<Tile>(key); !probe.ended(); probe.next()) {
      const u64 bucket = probe.bucket(tile.lane(), [&] { return this->hash_of(key); });
      bool last = !this->overflow().template passed<Access::frozen>(bucket, probe.low);
      DG_UNROLL
      for (u32 step = 0; step < steps; ++step) {
        const u32 part = (step * Tile::size + tile.lane()) % kQuarters;
        const Quarter seen =
            load_quarter<Access::frozen, typename Slots::Unit>(this->quarter(bucket, part));
        const auto sight = Open::scan(seen, key);
        const u32 hits = tile.ballot(sight.hit < Slots::per_quarter);
        if (hits != 0) {
          const u32 source = lowest_one(hits);
          const u64 first = bucket * Slots::per_bucket + part * Slots::per_quarter;
          Value value{};
          if (tile.lane() == source)
            value = this->value_of(Open::stop_at_key(seen, sight, source, first));
          return {true, verb::shared_value(tile, value, source)};
        }
        last = last || sight.gap < Slots::per_quarter;
      }
      if (tile.any(last)) break;
    }
    return {false, Value{}};
  }

  DG_FN u64 places() const { return at.buckets * Slots::per_bucket; }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    key = *this->slots().key_at(place);
    if (is_reserved(key)) return false;
    value = this->value_in(place);
    return true;
  }
};

}  // namespace dg::device

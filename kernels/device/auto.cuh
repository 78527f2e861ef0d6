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

  template <class Tile>
  DG_FN Found<Value> find(Tile tile, Key key) const {
    typename Open::Stop stop;
    if (is_reserved(key)) {
      stop = this->find_aside(key);
    } else {
      auto probe = this->template probe_of<Tile>(key);
      stop = this->template walk<Open::Goal::key, Access::frozen>(tile, key, probe);
    }
    Value value{};
    if (stop.end != Open::End::key) return {false, value};
    if (tile.lane() == stop.lane) value = this->value_of(stop);
    return {true, verb::shared_value(tile, value, stop.lane)};
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

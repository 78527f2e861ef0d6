/// The slab hash (SlabHash §III–IV): sets and maps of one value a key, and mixed batches on them.
#pragma once

#include "table/slab/crews.cuh"

namespace dg {

/// A table of one value a key, or of keys alone.
template <class KeyType, class ValueType>
struct Slab : SlabChains<KeyType, ValueType, false> {
  using Chains = SlabChains<KeyType, ValueType, false>;
  using typename Chains::End;
  using typename Chains::Key;
  using typename Chains::Stop;
  using typename Chains::Value;

  /// Operations of all kinds may run at once.
  static constexpr bool mixed = true;

  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change how) const {
    char* slab = this->chain_of(key);
    while (true) {
      const Stop stop = this->template walk<Access::shared>(tile, key, slab);
      slab = stop.slab;
      if (stop.end == End::full) {
        slab = this->extend(tile, key, slab);
        if (slab == nullptr) return Outcome::refused;
        continue;
      }
      Outcome outcome = Outcome::later;
      if (tile.lane() == stop.lane)
        outcome = stop.end == End::key
                      ? Chains::template change<false>(slab, stop.slot, key, stop.value, value, how)
                      : Chains::claim(slab, stop.slot, key, value, how.action != OnExisting::keep);
      outcome = static_cast<Outcome>(tile.shuffle(static_cast<u32>(outcome), stop.lane));
      if (outcome != Outcome::later) return outcome;
    }
  }

  template <class Tile>
  DG_FN Found<Value> find(Tile tile, Key key) const {
    const Stop stop = this->template walk<Access::frozen>(tile, key, this->chain_of(key));
    return {stop.end == End::key, Chains::shared_value(tile, stop.value, stop.lane)};
  }

  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    const Stop stop = this->template walk<Access::shared>(tile, key, this->chain_of(key));
    if (stop.end != End::key) return {0, 0};
    u32 erased = 0;
    if (tile.lane() == stop.lane) erased = Chains::withdraw(stop.slab, stop.slot, key, stop.value);
    erased = tile.shuffle(erased, stop.lane);
    return {erased, erased};
  }

  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    return this->template walk<Access::frozen>(tile, key, this->chain_of(key)).slabs;
  }

  /// One operation of a mixed batch. All kinds walk alike, so that the tiles of a warp read together, and
  /// part ways where the walk ends.
  template <class Tile>
  DG_FN Executed<Value> execute(Tile tile, Op op, Key key, Value value) const {
    const bool stores = op == Op::insert || op == Op::upsert;
    char* slab = this->chain_of(key);
    while (true) {
      Stop stop = this->template walk<Access::shared>(tile, key, slab);
      slab = stop.slab;
      if (stop.end != End::key && !stores) return {false, false, Value{}};
      if (stop.end == End::full) {
        slab = this->extend(tile, key, slab);
        if (slab == nullptr) return {false, true, Value{}};
        continue;
      }
      Act act = Act::again;
      if (tile.lane() == stop.lane)
        act = stop.end == End::key ? act_on_key(op, key, value, stop)
                                   : act_on_gap(op, key, value, stop);
      act = static_cast<Act>(tile.shuffle(static_cast<u32>(act), stop.lane));
      if (act == Act::again) continue;
      if (op != Op::find) return {act == Act::yes, false, Value{}};
      return {act == Act::yes, false, Chains::shared_value(tile, stop.value, stop.lane)};
    }
  }

  /// The same of the keys that the lanes bring, a key each. On an H100, with 2^22 keys at chain 0.6: crews of
  /// four find 29 G keys/s and miss 19, crews of eight 26 and 21.5; one by one it is 7 and 7.
  template <class Tile>
  DG_FN Found<Value> find_own(Tile tile, bool asked, Key mine) const
    requires(Tile::size == 32)
  {
    return SlabCrews<Slab, 8>{*this}.template find<4>(tile, asked, mine);
  }

  template <class Tile>
  DG_FN Outcome insert_own(Tile tile, bool asked, Key mine, Value value, Change how) const
    requires(Tile::size == 32)
  {
    return SlabCrews<Slab, 4>{*this}.template insert<Chains::has_ready_bits ? 1 : 2>(
        tile, asked, mine, value, how);
  }

  template <class Tile>
  DG_FN Removed erase_own(Tile tile, bool asked, Key mine) const
    requires(Tile::size == 32)
  {
    const u32 erased = SlabCrews<Slab, 8>{*this}.template erase<2>(tile, asked, mine);
    return {erased, erased};
  }

  template <class Tile>
  DG_FN Executed<Value> execute_own(Tile tile, bool asked, Op op, Key mine, Value value) const
    requires(Tile::size == 32 && !Chains::has_ready_bits)  // pairs of 8 + 8 bytes would spill
  {
    return SlabCrews<Slab, 8>{*this}.template execute<1>(tile, asked, op, mine, value);
  }

 private:
  enum class Act : u32 { no, yes, again };

  DG_FN static Act act_on_gap(Op op, Key key, Value value, const Stop& stop) {
    if (op == Op::insert || op == Op::upsert)
      return Chains::claim(stop.slab, stop.slot, key, value, true) == Outcome::created ? Act::yes
                                                                                       : Act::again;
    return Act::no;
  }

  DG_FN static Act act_on_key(Op op, Key key, Value value, Stop& stop) {
    if (op == Op::insert || op == Op::upsert) {
      const auto action = op == Op::insert ? OnExisting::keep : OnExisting::overwrite;
      const Outcome outcome =
          Chains::template change<true>(stop.slab, stop.slot, key, stop.value, value,
                                        Change{action, ValueKind::unsigned_integer});
      return outcome == Outcome::existed ? Act::no : Act::again;
    }
    if constexpr (Chains::has_ready_bits) {
      // A pair that is not ready is not there yet.
      if (!Chains::ready(stop.slab, stop.slot)) return Act::no;
      // After the bit: so it is the value that the bit speaks of.
      if (op == Op::find)
        stop.value = atomic_load<Order::relaxed>(Chains::value_of(stop.slab, stop.slot));
    }
    if (op == Op::find) return Act::yes;
    // The key may be further on by now.
    return Chains::withdraw(stop.slab, stop.slot, key, stop.value) ? Act::yes : Act::again;
  }
};

}  // namespace dg

/// The operations of chains that hold each key once, by tiles of any width.
///
/// `Chains` is a `NodeSlots` with chains of nodes, and has
///
///   chain_of(key)                            where the walk for a key begins
///   walk<access>(tile, key, node)            -> Stop, from a node on
///   extend(tile, who, last)                  links another node behind the last one, and gives what stands
///                                            behind it by now; null where the pool has none to give
#pragma once

#include "core/bucket.cuh"
#include "table/slab/node_slots.cuh"
#include "table/table_state.cuh"

namespace dg {

template <class Chains>
struct UniqueKeys : Chains {
  using typename Chains::End;
  using typename Chains::Key;
  using typename Chains::Stop;
  using typename Chains::Value;

  /// Operations of all kinds may run at once.
  static constexpr bool mixed = true;

  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change how) const {
    char* node = this->chain_of(key);
    while (true) {
      const Stop stop = this->template walk<Access::shared>(tile, key, node);
      node = stop.node;
      if (stop.end == End::full) {
        node = this->extend(tile, key, node);
        if (node == nullptr) return Outcome::refused;
        continue;
      }
      Outcome outcome = Outcome::later;
      if (tile.lane() == stop.lane)
        outcome = stop.end == End::key
                      ? Chains::template change<false>(node, stop.slot, key, stop.value, value, how)
                      : Chains::claim(node, stop.slot, key, value, how.action != OnExisting::keep);
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
    if (tile.lane() == stop.lane) erased = Chains::withdraw(stop.node, stop.slot, key, stop.value);
    erased = tile.shuffle(erased, stop.lane);
    return {erased, erased};
  }

  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    return this->template walk<Access::frozen>(tile, key, this->chain_of(key)).nodes;
  }

  /// One operation of a mixed batch. All kinds walk alike, so that the tiles of a warp read together, and
  /// part ways where the walk ends.
  template <class Tile>
  DG_FN Executed<Value> execute(Tile tile, Op op, Key key, Value value) const {
    const bool stores = op == Op::insert || op == Op::upsert;
    char* node = this->chain_of(key);
    while (true) {
      Stop stop = this->template walk<Access::shared>(tile, key, node);
      node = stop.node;
      if (stop.end != End::key && !stores) return {false, false, Value{}};
      if (stop.end == End::full) {
        node = this->extend(tile, key, node);
        if (node == nullptr) return {false, true, Value{}};
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

 private:
  enum class Act : u32 { no, yes, again };

  DG_FN static Act act_on_gap(Op op, Key key, Value value, const Stop& stop) {
    if (op == Op::insert || op == Op::upsert)
      return Chains::claim(stop.node, stop.slot, key, value, true) == Outcome::created ? Act::yes
                                                                                       : Act::again;
    return Act::no;
  }

  DG_FN static Act act_on_key(Op op, Key key, Value value, Stop& stop) {
    if (op == Op::insert || op == Op::upsert) {
      const auto action = op == Op::insert ? OnExisting::keep : OnExisting::overwrite;
      const Outcome outcome =
          Chains::template change<true>(stop.node, stop.slot, key, stop.value, value,
                                        Change{action, ValueKind::unsigned_integer});
      return outcome == Outcome::existed ? Act::no : Act::again;
    }
    if constexpr (Chains::has_ready_bits) {
      // A pair that is not ready is not there yet.
      if (!Chains::ready(stop.node, stop.slot)) return Act::no;
      // After the bit: so it is the value that the bit speaks of.
      if (op == Op::find)
        stop.value = atomic_load<Order::relaxed>(Chains::value_of(stop.node, stop.slot));
    }
    if (op == Op::find) return Act::yes;
    // The key may be further on by now.
    return Chains::withdraw(stop.node, stop.slot, key, stop.value) ? Act::yes : Act::again;
  }
};

}  // namespace dg

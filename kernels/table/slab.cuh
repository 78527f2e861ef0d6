/// The slab hash (SlabHash §III–IV): chains of slabs, one chain a bucket, worked on by tiles of any width.
///
/// A tile reads a slab by lanes that take 16 bytes each, so eight lanes read it at once; of 32 lanes, as in the
/// paper, the others read the same. Every operation walks to the key, to the first EMPTY slot or to the
/// end of the chain, and acts there.
///
/// Invariants, beside those of table/slab_slots.cuh
///  * Only the last slab of a chain has EMPTY slots, the last slots of it. A search stops there.
///  * A slab that is linked stays where it is until a flush. Who loses the race to link one gives his back.
///  * Nothing but a ready bit orders memory: a slab is empty before anyone can take it, and a pair of one word
///    is whole. Operations on a key are ordered by the changes of its slots: created where EMPTY is swapped for
///    it, erased where ERASED is. A search that misses a key has read each slot while the key was not in it,
///    and a key that moves is away for a moment, so there is a moment of the search at which it was nowhere.
#pragma once

#include "core/tile.cuh"
#include "table/slab_slots.cuh"

namespace dg {

/// What a flush of one bucket did.
struct Flushed {
  u32 marks;  // ERASED slots that are free again
  u32 slabs;  // given back
};

/// The chains, whatever they hold.
template <class KeyType, class ValueType, bool lists>
struct SlabChains : SlabSlots<KeyType, ValueType, lists> {
  using Own = SlabSlots<KeyType, ValueType, lists>;
  using Own::at;
  using Own::auxiliary_of;
  using Own::next_of;
  using Own::per_quarter;
  using Own::per_slab;
  using typename Own::Key;
  using typename Own::Sight;
  using typename Own::Slots;
  using typename Own::Unit;
  using typename Own::Value;

  /// Where a walk ended: at the key, at the first EMPTY slot, or at the end of a chain that has none.
  enum class End : u32 { key, gap, full };

  /// Only `lane` knows the slot and the value.
  struct Stop {
    End end;
    u32 lane;
    u32 slot;
    u32 slabs;  // that were read
    Value value;
    char* slab;
  };

  DG_FN SlabAlloc pool() const { return SlabAlloc{at.pool}; }
  DG_FN char* first_slab(u64 bucket) const {
    return static_cast<char*>(at.slabs) + bucket * kSlabBytes;
  }
  DG_FN char* chain_of(Key key) const {
    return first_slab(mulhi(hash_key(key, at.seed), at.buckets));
  }

  DG_FN void prefetch(Key key) const {
    const char* slab = chain_of(key);
    dg::prefetch(slab);
    dg::prefetch(slab + kSlabBytes / 2);
  }

  /// Reads the quarters of a slab that this lane holds, `look(part, quarter)` by all lanes for each; true ends
  /// it. Gives the address of the next slab to all lanes, or kNoSlab where `look` ended it.
  template <Access access, class Tile, class Look>
  DG_FN u32 read(Tile tile, char* slab, const Look& look) const {
    constexpr u32 steps = Tile::size < kSlabQuarters ? kSlabQuarters / Tile::size : 1;
    u32 next = kNoSlab;
    DG_UNROLL
    for (u32 step = 0; step < steps; ++step) {
      const u32 part = (step * Tile::size + tile.lane()) % kSlabQuarters;
      Quarter seen = load_quarter<access, Unit>(slab + part * kQuarterBytes);
      if (part == kLastPart) {
        next = seen.word[3];
        Own::hide_words(seen);
      }
      if (look(part, seen)) return kNoSlab;
    }
    return tile.shuffle(next, kLastPart % Tile::size);
  }

  /// Walks from a slab on.
  template <Access access, class Tile>
  DG_FN Stop walk(Tile tile, Key key, char* slab) const {
    Stop stop{End::full, 0, 0, 0, Value{}, slab};
    while (true) {
      ++stop.slabs;
      const u32 next = read<access>(tile, stop.slab, [&](u32 part, const Quarter& seen) {
        const Sight sight = Own::scan(seen, key);
        const u32 hits = tile.ballot(sight.hit < per_quarter);
        if (hits) {
          stop.end = End::key;
          stop.lane = lowest_one(hits);
          stop.slot = part * per_quarter + sight.hit;
          stop.value = Own::value_at(seen, sight.hit);
          return true;
        }
        const u32 gaps = tile.ballot(sight.gap < per_quarter);
        if (gaps == 0) return false;
        stop.end = End::gap;
        stop.lane = lowest_one(gaps);
        stop.slot = part * per_quarter + sight.gap;
        return true;
      });
      if (stop.end != End::full || next == kNoSlab) return stop;
      stop.slab = pool().slab(next);
    }
  }

  /// Links another slab behind the last one of a chain, and gives what stands behind that by now; null where
  /// the pool has none to give.
  template <class Tile>
  DG_FN char* extend(Tile tile, u64 who, char* last, [[maybe_unused]] char* first = nullptr) const {
    const u32 taken = pool().allocate(tile, who);
    u32 next = kNoSlab;
    if (tile.lane() == 0) {
      next = taken == kNoSlab ? atomic_load<Order::relaxed>(next_of(last))
                              : atomic_swap_if<Order::relaxed>(next_of(last), kNoSlab, taken);
      if (taken != kNoSlab) {
        if (next != kNoSlab)
          pool().release(taken);
        else
          next = taken;
      }
      if constexpr (lists)
        if (next != kNoSlab) atomic_store<Order::relaxed>(auxiliary_of(first), next);
    }
    next = tile.shuffle(next, 0);
    return next == kNoSlab ? nullptr : pool().slab(next);
  }

  /// Moves what a bucket's chain holds into as few slabs as it needs, and gives the others back. Alone at the
  /// bucket, in a launch that takes no slab.
  template <class Tile>
  DG_FN Flushed flush(Tile tile, u64 bucket) const {
    Flushed done{0, 0};
    u32 filled = 0;  // slots of `to`
    char *from = first_slab(bucket), *to = from;
    while (true) {
      const u32 next = read<Access::shared>(tile, from, [&](u32 part, const Quarter& seen) {
        u32 live[per_quarter], before = 0, all = 0;
        DG_UNROLL
        for (u32 i = 0; i < per_quarter; ++i) {
          const Key key = Slots::key(seen, i);
          // Lanes beyond the eighth read what others read, and the last words are no slots.
          const bool mine = tile.lane() < kSlabQuarters && part * per_quarter + i < per_slab;
          live[i] = tile.ballot(mine && !is_reserved(key));
          before += count_ones(live[i] & ones_below(tile.lane()));
          all += count_ones(live[i]);
          done.marks += count_ones(tile.ballot(mine && key == Mark<Key>::erased));
        }
        char* const behind =
            filled + all > per_slab ? pool().slab(atomic_load<Order::relaxed>(next_of(to))) : to;
        DG_UNROLL
        for (u32 i = 0; i < per_quarter; ++i) {
          if (!(live[i] >> tile.lane() & 1u)) continue;
          const u32 place = filled + before++;
          put(place < per_slab ? to : behind, place < per_slab ? place : place - per_slab, seen, i);
        }
        filled += all;
        if (filled > per_slab) {
          filled -= per_slab;
          to = behind;
        }
        return false;
      });
      if (next == kNoSlab) break;
      from = pool().slab(next);
    }
    tile.sync();
    if constexpr (lists) {
      // It may name a slab that is given back.
      if (tile.lane() == 0) atomic_store<Order::relaxed>(auxiliary_of(first_slab(bucket)), kNoSlab);
    }
    const u32 rest = empty_from(tile, to, filled);
    for (u32 slab = rest; slab != kNoSlab; ++done.slabs) {
      char* const given = pool().slab(slab);
      const u32 next = empty_from(tile, given, 0);
      tile.sync();
      if (tile.lane() == 0) pool().release(slab);
      slab = next;
    }
    return done;
  }

  /// Slots in all slabs, those of the pool that are not taken too: these are empty.
  DG_FN u64 places() const { return (at.buckets + pool().slabs()) * per_slab; }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    const u64 number = place / per_slab;
    const u32 slot = static_cast<u32>(place % per_slab);
    char* const slab =
        number < at.buckets ? first_slab(number) : pool().slab_at(number - at.buckets);
    if constexpr (Slots::one_word) {
      const u64 word = *Own::slot_of(slab, slot);
      key = static_cast<Key>(word);
      value = static_cast<Value>(word >> 32);
    } else {
      key = *Own::slot_of(slab, slot);
      if constexpr (Own::has_value) value = *Own::value_of(slab, slot);
    }
    return !is_reserved(key);
  }

 private:
  /// Slot `index` of a quarter into another slot; nobody else works there.
  DG_FN static void put(char* slab, u32 slot, const Quarter& from, u32 index) {
    const Key key = Slots::key(from, index);
    const Value value = Own::value_at(from, index);
    atomic_store<Order::relaxed>(Own::slot_of(slab, slot), Own::unit_of(key, value));
    if constexpr (!Own::one_word) atomic_store<Order::relaxed>(Own::value_of(slab, slot), value);
  }

  /// Empties a slab from a slot on, and ends the chain there; gives what came behind it.
  template <class Tile>
  DG_FN static u32 empty_from(Tile tile, char* slab, u32 filled) {
    u32 next = kNoSlab;
    if (tile.lane() == 0) {
      next = atomic_exchange<Order::relaxed>(next_of(slab), kNoSlab);
      if constexpr (Own::has_ready_bits)
        atomic_store<Order::relaxed>(auxiliary_of(slab), ~0u << filled);
    }
    for (u32 slot = filled + tile.lane(); slot < per_slab; slot += Tile::size) {
      atomic_store<Order::relaxed>(Own::slot_of(slab, slot), static_cast<Unit>(~Unit{0}));
      if constexpr (!Own::one_word)
        atomic_store<Order::relaxed>(Own::value_of(slab, slot), static_cast<Value>(~Value{0}));
    }
    return tile.shuffle(next, 0);
  }
};

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
    return {stop.end == End::key, value_from(tile, stop)};
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
      return {act == Act::yes, false, value_from(tile, stop)};
    }
  }

 private:
  enum class Act : u32 { no, yes, again };

  template <class Tile>
  DG_FN static Value value_from(Tile tile, const Stop& stop) {
    if constexpr (Chains::has_value)
      return tile.shuffle(stop.value, stop.lane);
    else
      return {};
  }

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

/// A table of several values a key, where the last slab of a chain has its EMPTY slots anywhere. Word 30
/// of a bucket's first slab leads adding to the end of the chain.
template <class KeyType, class ValueType>
struct SlabLists : SlabChains<KeyType, ValueType, true> {
  using Chains = SlabChains<KeyType, ValueType, true>;
  using Chains::per_quarter;
  using typename Chains::Key;
  using typename Chains::Slots;
  using typename Chains::Value;

  /// Adds a value; in no order.
  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change) const {
    char* const first = this->chain_of(key);
    const u32 hint = tile.shuffle(atomic_load<Order::relaxed>(Chains::auxiliary_of(first)), 0);
    char* slab = hint == kNoSlab ? first : this->pool().slab(hint);
    // Tiles that bring the same key choose different slots.
    const u32 start = static_cast<u32>(mix(static_cast<u64>(value))) % Tile::size;
    while (true) {
      bool placed = false, taken = false;
      const u32 next =
          this->template read<Access::shared>(tile, slab, [&](u32 part, const Quarter& seen) {
            const u32 gap = Chains::scan(seen, key).gap;
            const u32 gaps = tile.ballot(gap < per_quarter && tile.lane() < kSlabQuarters);
            if (gaps == 0) return false;
            const u32 behind = gaps & ~ones_below(start);
            const u32 source = lowest_one(behind ? behind : gaps);
            if (tile.lane() == source)
              placed = Chains::claim(slab, part * per_quarter + gap, key, value, false) ==
                       Outcome::created;
            placed = tile.any(placed);
            taken = !placed;
            return true;
          });
      if (placed) return Outcome::created;
      if (taken) continue;
      if (next != kNoSlab) {
        slab = this->pool().slab(next);
        continue;
      }
      slab = this->extend(tile, static_cast<u64>(key) + start, slab, first);
      if (slab == nullptr) return Outcome::refused;
    }
  }

  /// How many values a key has.
  template <class Tile>
  DG_FN u64 count(Tile tile, Key key) const {
    u64 values = 0;
    for_each_hit<Access::frozen>(tile, key,
                                 [&](char*, u32, const Quarter&, const u32(&hits)[per_quarter]) {
                                   DG_UNROLL
                                   for (u32 i = 0; i < per_quarter; ++i)
                                     values += count_ones(hits[i]);
                                 });
    return values;
  }

  /// Writes the values of a key, as many as `count` tells.
  template <class Tile>
  DG_FN void gather(Tile tile, Key key, Value* to) const {
    for_each_hit<Access::frozen>(
        tile, key, [&](char*, u32, const Quarter& seen, const u32(&hits)[per_quarter]) {
          DG_UNROLL
          for (u32 i = 0; i < per_quarter; ++i) {
            if (hits[i] >> tile.lane() & 1u)
              to[count_ones(hits[i] & ones_below(tile.lane()))] = Slots::value(seen, i);
            to += count_ones(hits[i]);
          }
        });
  }

  /// Removes a key with all its values.
  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    u32 erased = 0;
    for_each_hit<Access::shared>(
        tile, key, [&](char* slab, u32 part, const Quarter& seen, const u32(&hits)[per_quarter]) {
          DG_UNROLL
          for (u32 i = 0; i < per_quarter; ++i) {
            const bool mine =
                (hits[i] >> tile.lane() & 1u) &&
                Chains::withdraw(slab, part * per_quarter + i, key, Slots::value(seen, i));
            erased += count_ones(tile.ballot(mine));
          }
        });
    return {erased, erased};
  }

  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    u64 slabs = 0;
    for_each_hit<Access::frozen>(
        tile, key, [&](char*, u32, const Quarter&, const u32(&)[per_quarter]) { ++slabs; });
    return Tile::size < kSlabQuarters ? slabs * Tile::size / kSlabQuarters : slabs;
  }

 private:
  /// `visit(slab, part, quarter, hits)` by all lanes for each quarter that they hold: bit l of hits[i] tells
  /// that the slot i of lane l's has the key.
  template <Access access, class Tile, class Visit>
  DG_FN void for_each_hit(Tile tile, Key key, const Visit& visit) const {
    char* slab = this->chain_of(key);
    while (true) {
      const u32 next = this->template read<access>(tile, slab, [&](u32 part, const Quarter& seen) {
        u32 hits[per_quarter];
        DG_UNROLL
        for (u32 i = 0; i < per_quarter; ++i)
          hits[i] = tile.ballot(Slots::key(seen, i) == key && tile.lane() < kSlabQuarters);
        visit(slab, part, seen, hits);
        return false;
      });
      if (next == kNoSlab) return;
      slab = this->pool().slab(next);
    }
  }
};

}  // namespace dg

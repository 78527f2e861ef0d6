/// Chains of slabs, one a bucket (SlabHash §III), worked on by tiles of any width.
///
/// A tile reads a slab by lanes that take 16 bytes each, so eight lanes read it at once; of 32 lanes, as in the
/// paper, the others read the same. Every operation walks to the key, to the first EMPTY slot or to the
/// end of the chain, and acts there.
///
/// Invariants, beside those of table/slab/node_slots.cuh
///  * Only the last slab of a chain has EMPTY slots, the last slots of it. A search stops there.
///  * A slab that is linked stays where it is until a flush. Who loses the race to link one gives his back.
///  * Nothing but a ready bit orders memory: a slab is empty before anyone can take it, and a pair of one word
///    is whole. Operations on a key are ordered by the changes of its slots: created where EMPTY is swapped for
///    it, erased where ERASED is. A search that misses a key has read each slot while the key was not in it,
///    and a key that moves is away for a moment, so there is a moment of the search at which it was nowhere.
#pragma once

#include "core/tile.cuh"
#include "table/slab/slots.cuh"

namespace dg {

/// The chains, whatever they hold.
template <class KeyType, class ValueType, bool lists>
struct SlabChains : SlabSlots<KeyType, ValueType, lists> {
  using Own = SlabSlots<KeyType, ValueType, lists>;
  using Own::at;
  using Own::auxiliary_of;
  using Own::next_of;
  using Own::per_quarter;
  using Own::per_slab;
  using typename Own::End;
  using typename Own::Key;
  using typename Own::Sight;
  using typename Own::Slots;
  using typename Own::Stop;
  using typename Own::Unit;
  using typename Own::Value;

  DG_FN SlabAlloc pool() const { return SlabAlloc{at.pool}; }
  DG_FN char* first_slab(u64 bucket) const {
    return static_cast<char*>(at.slabs) + bucket * kSlabBytes;
  }
  DG_FN u32 bucket_of(Key key) const {
    return owner_of_hash(hash_key(key, at.seed), static_cast<u32>(at.buckets));
  }
  DG_FN char* chain_of(Key key) const { return first_slab(bucket_of(key)); }

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
      ++stop.nodes;
      const u32 next = read<access>(tile, stop.node, [&](u32 part, const Quarter& seen) {
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
      stop.node = pool().slab(next);
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
          Own::put(place < per_slab ? to : behind, place < per_slab ? place : place - per_slab,
                   Slots::key(seen, i), Own::value_at(seen, i));
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
    for (u32 slab = rest; slab != kNoSlab; ++done.nodes) {
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
    Own::get(slab, slot, key, value);
    return !is_reserved(key);
  }

 private:
  /// Empties a slab from a slot on, and ends the chain there; gives what came behind it.
  template <class Tile>
  DG_FN static u32 empty_from(Tile tile, char* slab, u32 filled) {
    u32 next = kNoSlab;
    if (tile.lane() == 0) {
      next = atomic_exchange<Order::relaxed>(next_of(slab), kNoSlab);
      if constexpr (Own::has_ready_bits)
        atomic_store<Order::relaxed>(auxiliary_of(slab), ~0u << filled);
    }
    for (u32 slot = filled + tile.lane(); slot < per_slab; slot += Tile::size)
      Own::wipe(slab, slot);
    return tile.shuffle(next, 0);
  }
};

}  // namespace dg

/// Open addressing with cooperative probing as it was published (WarpCore §IV-B): sets and maps, and maps of
/// several values a key, each in a slot of its own.
///
/// Invariants
///  * A key takes the first EMPTY slot of its sequence, and no slot becomes EMPTY again while the table lives:
///    erasing leaves ERASED, which inserting never takes. So a search ends at the first EMPTY slot, and equal
///    keys meet.
///  * The value of every slot without a key is all ones, so that clearing is one fill with 0xFF.
///  * Launches that insert, erase and read do not overlap.
#pragma once

#include "probe/cops.cuh"
#include "table/rows/cops_rows.cuh"
#include "table/slots.cuh"
#include "table/table_state.cuh"

namespace dg {

/// By value.
struct CopsStorage {
  void* keys;    // the slots, or their keys where the layout is soa
  void* values;  // of each slot where the layout is soa; else null
  TableState* state;
  u64 windows;  // a prime
  u64 seed;

  DG_FIELDS(keys, values, state, windows, seed)
};

/// What tables of one value and of several values a key share: the walk.
template <class KeyType, class ValueType, Layout layout>
struct CopsWindows {
  using Array = SlotArray<KeyType, ValueType, layout>;
  using Slots = typename Array::Slots;
  using Key = KeyType;
  using Value = typename Slots::Value;
  using Storage = CopsStorage;
  static constexpr bool has_value = Slots::has_value;
  static constexpr u32 per_quarter = Slots::per_quarter;
  static constexpr u32 window_quarters = kWindowSlots / per_quarter;

  Storage at;

  DG_FN Array slots() const { return Array{at.keys, at.values}; }
  DG_FN u64 hash_of(Key key) const { return hash_key(key, at.seed); }

  DG_FN u64 places() const { return at.windows * kWindowSlots; }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    key = *slots().key_at(place);
    if (is_reserved(key)) return false;
    value = slots().value_in(place);
    return true;
  }

  DG_FN void prefetch(Key key) const {
    const u64 hash = hash_of(key);
    const u64 quarter = CopsProbe(at.windows, hash).window * window_quarters +
                        CopsProbe::first_quarter(hash, window_quarters);
    dg::prefetch(slots().quarter(quarter));
    if constexpr (has_value && !Slots::paired)
      dg::prefetch(static_cast<const Value*>(at.values) + quarter * per_quarter);
  }

 protected:
  enum class Next { further, again, end };

  /// The slots that a lane sees at once, neighbours, from `first` on. Of lanes that see the same, the first
  /// counts.
  template <u32 quarters>
  struct Seen {
    static constexpr u32 count = quarters * per_quarter;
    Key key;
    u64 first;
    Quarter quarter[quarters];

    DG_FN Key key_in(u32 index) const {
      return Slots::key(quarter[index / per_quarter], index % per_quarter);
    }

    /// Where the key stands first; `count` where it does not. The same for EMPTY.
    DG_FN u32 hit() const { return first_of(key); }
    DG_FN u32 gap() const { return first_of(Mark<Key>::empty); }

    /// The value of a slot that only the running program knows.
    DG_FN Value value_at(u32 index) const {
      Value value = Slots::value(quarter[0], 0);
      DG_UNROLL
      for (u32 i = 1; i < count; ++i)
        if (i == index) value = Slots::value(quarter[i / per_quarter], i % per_quarter);
      return value;
    }

   private:
    DG_FN u32 first_of(Key wanted) const {
      u32 place = count;
      DG_UNROLL
      for (u32 i = count; i-- > 0;)
        if (key_in(i) == wanted) place = i;
      return place;
    }
  };

  /// Narrow tiles read two quarters a lane, a sector of memory or a line; wide ones, a quarter.
  template <u32 width>
  static constexpr u32 quarters_of = width < kQuarters ? 2 : 1;

  /// Reads the slots of the key's sequence in its order, as many at a time as the tile can, until
  /// `look(seen, windows before)` ends it; false where all windows were read.
  template <Access access, class Tile, class Look>
  DG_FN bool walk(Tile tile, Key key, const Look& look) const {
    constexpr u32 quarters = quarters_of<Tile::size>, at_once = quarters * Tile::size;
    const u64 hash = hash_of(key);
    CopsProbe probe(at.windows, hash);
    const u32 start = CopsProbe::first_quarter(hash, window_quarters) + quarters * tile.lane();
    for (u64 visited = 0; visited < at.windows; ++visited) {
      DG_ROLL
      for (u32 step = 0; step < window_quarters; step += at_once) {
        // Lanes beyond the end of the window see what others see.
        const u64 quarter =
            probe.window * window_quarters + ((start + step) & (window_quarters - 1));
        Seen<quarters> seen{key, quarter * per_quarter, {}};
        Next next = Next::again;
        while (next == Next::again) {
          DG_UNROLL
          for (u32 i = 0; i < quarters; ++i)
            seen.quarter[i] =
                load_quarter<access, typename Slots::Unit>(slots().quarter(quarter + i));
          next = look(seen, visited);
        }
        if (next == Next::end) return true;
      }
      probe.next(at.windows, hash);
    }
    return false;
  }

  /// Windows that a search reads until it meets an EMPTY slot, or with `one` the key.
  template <bool one, class Tile>
  DG_FN u64 windows_read(Tile tile, Key key) const {
    u64 windows = 0;
    walk<Access::frozen>(tile, key, [&](const auto& seen, u64 visited) {
      windows = visited + 1;
      const bool last = seen.gap() < seen.count || (one && seen.hit() < seen.count);
      return tile.any(last) ? Next::end : Next::further;
    });
    return windows;
  }
};

/// One value a key, or none.
template <class KeyType, class ValueType, Layout layout = natural_layout<KeyType, ValueType>>
struct Cops : CopsWindows<KeyType, ValueType, layout> {
  using Windows = CopsWindows<KeyType, ValueType, layout>;
  using typename Windows::Key;
  using typename Windows::Next;
  using typename Windows::Slots;
  using typename Windows::Value;
  using Windows::at;
  using Windows::slots;

  /// Tiles of four take rows side by side where launches let them.
  static constexpr int rows_width = kQuarters;
  DG_FN CopsRows<Cops> rows() const { return {*this}; }

  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change change) const {
    u32 outcome = static_cast<u32>(Outcome::refused);
    this->template walk<Access::shared>(tile, key, [&](const auto& seen, u64) {
      const u32 hit = seen.hit(), gap = seen.gap();
      const u32 hits = tile.ballot(hit < seen.count), gaps = tile.ballot(gap < seen.count);
      if ((hits | gaps) == 0) return Next::further;
      const u32 source = lowest_one(hits ? hits : gaps);
      const u64 slot = seen.first + (hits ? hit : gap);
      if (tile.lane() == source) {
        Outcome got = Outcome::existed;
        if (hits)
          slots().change(slot, key, value, change);
        else
          got = slots().publish_or_change(slot, key, value, change);
        outcome = static_cast<u32>(got);
      }
      outcome = tile.shuffle(outcome, source);
      // Another key took the slot: the same slots are read again.
      return outcome == static_cast<u32>(Outcome::refused) ? Next::again : Next::end;
    });
    return static_cast<Outcome>(outcome);
  }

  template <class Tile>
  DG_FN Found<Value> find(Tile tile, Key key) const {
    Found<Value> found{false, Value{}};
    this->template walk<Access::frozen>(tile, key, [&](const auto& seen, u64) {
      const u32 hit = seen.hit();
      const u32 hits = tile.ballot(hit < seen.count);
      if (hits == 0) return tile.any(seen.gap() < seen.count) ? Next::end : Next::further;
      found.found = true;
      if constexpr (Slots::has_value) {
        const u32 source = lowest_one(hits);
        if constexpr (Slots::paired)
          found.value = seen.value_at(hit);
        else if (tile.lane() == source)
          found.value = slots().value_in(seen.first + hit);
        found.value = tile.shuffle(found.value, source);
      }
      return Next::end;
    });
    return found;
  }

  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    u32 erased = 0;
    this->template walk<Access::shared>(tile, key, [&](const auto& seen, u64) {
      const u32 hit = seen.hit();
      const u32 hits = tile.ballot(hit < seen.count);
      if (hits == 0) return tile.any(seen.gap() < seen.count) ? Next::end : Next::further;
      const u32 source = lowest_one(hits);
      if (tile.lane() == source)
        erased = slots().withdraw(seen.first + hit, key, Mark<Key>::erased);
      erased = tile.shuffle(erased, source);
      return Next::end;
    });
    return {erased, erased};
  }

  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    return this->template windows_read<true>(tile, key);
  }

  DG_FN void set_value(u64 place, Key key, Value value) const
    requires(Slots::has_value)
  {
    slots().replace(place, key, value);
  }
};

/// A slot for each value: WarpCore's MultiValueHashTable.
template <class KeyType, class ValueType, Layout layout = natural_layout<KeyType, ValueType>>
struct CopsLists : CopsWindows<KeyType, ValueType, layout> {
  using Windows = CopsWindows<KeyType, ValueType, layout>;
  using typename Windows::Key;
  using typename Windows::Next;
  using typename Windows::Slots;
  using typename Windows::Value;
  using Windows::at;
  using Windows::slots;
  using Windows::window_quarters;

  /// Adds the value, whatever the key has.
  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change) const {
    u32 created = 0;
    this->template walk<Access::shared>(tile, key, [&](const auto& seen, u64) {
      const u32 gap = seen.gap(), gaps = tile.ballot(gap < seen.count);
      if (gaps == 0) return Next::further;
      const u32 source = lowest_one(gaps);
      if (tile.lane() == source)
        created = slots().publish(seen.first + gap, key, value) == Outcome::created;
      created = tile.shuffle(created, source);
      return created ? Next::end : Next::again;
    });
    return created ? Outcome::created : Outcome::refused;
  }

  template <class Tile>
  DG_FN u64 count(Tile tile, Key key) const {
    u64 values = 0;
    visit<Access::frozen>(tile, key, [&](u64 before, u32 hits, const auto&, u32) {
      values = before + count_ones(hits);
    });
    return values;
  }

  template <class Tile>
  DG_FN void gather(Tile tile, Key key, Value* to) const {
    visit<Access::frozen>(tile, key, [&](u64 before, u32 hits, const auto& seen, u32 index) {
      if ((hits >> tile.lane() & 1) == 0) return;
      const u64 place = before + count_ones(hits & ones_below(tile.lane()));
      if constexpr (Slots::paired)
        to[place] = seen.value_at(index);
      else
        to[place] = slots().value_in(seen.first + index);
    });
  }

  /// Removes all values of the key.
  template <class Tile>
  DG_FN Removed erase(Tile tile, Key key) const {
    u32 erased = 0;
    visit<Access::shared>(tile, key, [&](u64, u32 hits, const auto& seen, u32 index) {
      const bool mine = (hits >> tile.lane() & 1) != 0 &&
                        slots().withdraw(seen.first + index, key, Mark<Key>::erased);
      erased += count_ones(tile.ballot(mine));
    });
    return {erased, erased};
  }

  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    return this->template windows_read<false>(tile, key);
  }

 private:
  /// Calls `each(values before, lanes, seen, index)` by all lanes for the slots of the key: those at
  /// `index` of what `lanes` see.
  template <Access access, class Tile, class Each>
  DG_FN void visit(Tile tile, Key key, const Each& each) const {
    u64 values = 0;
    this->template walk<access>(tile, key, [&](const auto& seen, u64) {
      // Of lanes that see the same, the first.
      const bool counts = tile.lane() < window_quarters;
      DG_UNROLL
      for (u32 i = 0; i < seen.count; ++i) {
        const u32 hits = tile.ballot(counts && seen.key_in(i) == key);
        if (hits == 0) continue;
        each(values, hits, seen, i);
        values += count_ones(hits);
      }
      return tile.any(seen.gap() < seen.count) ? Next::end : Next::further;
    });
  }
};

}  // namespace dg

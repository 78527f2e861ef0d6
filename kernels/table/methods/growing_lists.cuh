/// All values of a key in a linked list of growing buckets that the inserting kernel itself appends to:
/// the bucket list hash table of WarpCore §IV-C.
///
/// A line of 64 bytes has four slots: a key and the handle of its list, a 64-bit word that tells the
/// last bucket, the number of values and one of four states. Values are appended by compare-and-swap
/// of the handle, which reserves their places, and then stores. Whoever finds too few places left
/// blocks the handle, takes buckets from the pool, links them and publishes the new handle; the others
/// wait meanwhile.
///
/// Invariants
///  * Whoever has blocked a handle publishes it before it waits for anybody.
///  * A link to the bucket before it leads every bucket but a list's first.
///  * The sizes of a list's buckets follow from their number alone, so the count and the last bucket
///    tell where all values are.
///  * Launches that append, erase and read do not overlap: what was reserved is stored when the launch
///    ends, so relaxed order suffices throughout.
///  * A key takes the first EMPTY slot of its sequence, and no slot becomes EMPTY again: erasing leaves
///    ERASED. A key without a list, whose append was refused, counts as absent.
#pragma once

#include "core/bucket.cuh"
#include "memory/slot_pool.cuh"
#include "probe/segmented.cuh"
#include "table/bucket_list.cuh"
#include "table/table_state.cuh"

namespace dg {

/// By value. `state->links` counts the keys, and `state->side_value` are the handles of reserved keys.
struct GrowingStorage {
  SlotPool pool;
  Growth growth;
  void* slots;
  void* values;  // the pool's
  TableState* state;
  u64 lines;          // whole segments
  u64 segment_shift;  // a segment has 2^segment_shift lines
  u64 seed;

  DG_FIELDS(pool, growth, slots, values, state, lines, segment_shift, seed)
};

/// Packed: 2 bits state, 28 bits number of values, 34 bits first slot of the last bucket. All ones is a
/// list without any value, so that clearing is one fill with 0xFF.
struct GrowingHandle {
  enum class State : u32 { ready = 0, full = 1, blocked = 2, uninitialised = 3 };

  static constexpr u32 tail_bits = 34, count_bits = 28;
  static constexpr u64 most_values = (1ull << count_bits) - 1;

  u64 bits;

  DG_FN static GrowingHandle of(State state, u64 count, u64 tail) {
    return {static_cast<u64>(state) << 62 | count << tail_bits | tail};
  }
  DG_FN static GrowingHandle none() { return {~0ull}; }

  DG_FN State state() const { return static_cast<State>(bits >> 62); }
  DG_FN u64 count() const {
    return state() == State::uninitialised ? 0 : bits >> tail_bits & most_values;
  }
  DG_FN u64 tail() const { return bits & ((1ull << tail_bits) - 1); }
  DG_FN GrowingHandle with(State state) const { return of(state, count(), tail()); }
};

/// The places that an append has got.
struct Claim {
  GrowingHandle before;  // what the list was
  u64 fresh;             // first slot of the buckets that were taken for it, one after the other
  u32 buckets;           // that the list had
  u32 stored;            // values that have got a place
};

template <class KeyType, class ValueType>
struct GrowingLists {
  using Key = KeyType;
  using Value = ValueType;
  using Storage = GrowingStorage;
  using State = GrowingHandle::State;
  static constexpr bool has_value = true;
  static constexpr u32 no_slot = ~0u;
  /// Tries of one row. With back-off, half a second.
  static constexpr u32 most_tries = 1u << 18;
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8);

  Storage at;

  /// A key's slot and its handle, as they were seen; `no_slot` where it has none and gets none.
  struct Place {
    u32 slot;
    GrowingHandle handle;
  };

  /// What became of a try to append.
  enum class Try : u32 { placed, blocking, again, refused };

  /// The lists of the reserved keys hang on the side slots, which are numbered down from `no_slot`.
  DG_FN u64* handle_at(u32 slot) const {
    if (slot >= side_slot(1)) return &at.state->side_value[side_slot(0) - slot];
    return words() + 2 * static_cast<u64>(slot) + 1;
  }

  /// Where a key is; with `create`, the slot that it takes now where it is nowhere. The same on all
  /// lanes.
  template <Access access, bool create = false, class Tile>
  DG_FN Place place(Tile tile, Key key) const {
    Place found{no_slot, GrowingHandle::none()};
    walk<access>(tile, key, [&](auto& seen, u32) {
      while (true) {
        const u32 hits = tile.ballot(seen.key_at() < seen.count);
        if (hits != 0) {
          found = shared(tile, lowest_one(hits), seen.slot(seen.key_at()), seen.handle());
          return true;
        }
        const u32 gaps = tile.ballot(seen.gap_at() < seen.count);
        if (gaps == 0) return false;
        if constexpr (!create) return true;
        const u32 source = lowest_one(gaps);
        u64 old = 0;
        if (tile.lane() == source) {
          u64* slot = words() + 2 * seen.slot(seen.gap_at());
          old = atomic_swap_if<Order::relaxed>(slot, ~0ull, word_of(key));
          if (old != ~0ull) seen.set(seen.gap_at(), old);
        }
        if (tile.shuffle(old, source) != ~0ull) continue;
        found = shared(tile, source, seen.slot(seen.gap_at()), GrowingHandle::none());
        return true;
      }
    });
    return found;
  }

  /// The same by one lane, of reserved keys, too.
  template <Access access, bool create = false>
  DG_FN Place place_of(Key key) const {
    if (!is_reserved(key)) return place<access, create>(Tile<1>{}, key);
    const u32 slot = side_slot(side_index(key));
    return {slot, {atomic_load<Order::relaxed>(handle_at(slot))}};
  }

  /// One try of one lane to append `wanted` values. `seen` is what the handle was when it was last read,
  /// and becomes what it is now. Whoever has blocked it takes `slots_for` and calls `publish` next.
  DG_FN Try attempt(u64* handle, GrowingHandle& seen, u64 wanted, Claim& claim) const {
    if (seen.state() == State::blocked) seen.bits = atomic_load<Order::relaxed>(handle);
    if (seen.state() == State::blocked) return Try::again;
    const u64 count = seen.count();
    claim = {seen, 0, static_cast<u32>(at.growth.buckets_for(count)), 0};
    if (count + wanted > GrowingHandle::most_values) return Try::refused;
    const u64 room = room_of(claim);
    GrowingHandle next = seen.with(State::blocked);
    if (wanted <= room)
      next = GrowingHandle::of(wanted == room ? State::full : State::ready, count + wanted,
                               seen.tail());
    const u64 old = atomic_swap_if<Order::relaxed>(handle, seen.bits, next.bits);
    if (old != seen.bits) {
      seen.bits = old;
      return Try::again;
    }
    claim.stored = static_cast<u32>(wanted <= room ? wanted : 0);
    return wanted <= room ? Try::placed : Try::blocking;
  }

  /// After a try that failed, as `round` others before: what a swap has seen that failed is new, but a
  /// blocked list takes time, and so do swaps where too many try at once.
  DG_FN void wait(const u64* handle, u32 round, GrowingHandle& seen) const {
    if (round < 2 && seen.state() != State::blocked) return;
    back_off(round);
    seen.bits = atomic_load<Order::relaxed>(handle);
  }

  /// Slots of the buckets that a list needs for `wanted` values beyond its last bucket.
  DG_FN u64 slots_for(const Claim& claim, u64 wanted) const {
    const u64 after = at.growth.buckets_for(claim.before.count() + wanted);
    return at.growth.slots_before(after) - at.growth.slots_before(claim.buckets);
  }

  /// Links the slots that were taken from `fresh` on and unblocks the handle. Where there were none, as
  /// many values as the last bucket has room for are placed.
  DG_FN void publish(u64* handle, u64 wanted, u64 fresh, Claim& claim) const {
    GrowingHandle seen = claim.before;
    if (fresh == SlotPool::none) {
      claim.stored = static_cast<u32>(room_of(claim));
      if (claim.buckets > 0)
        seen = GrowingHandle::of(State::full, seen.count() + claim.stored, seen.tail());
    } else {
      const u64 count = seen.count() + wanted, before = at.growth.slots_before(claim.buckets);
      const u32 after = static_cast<u32>(at.growth.buckets_for(count));
      u64 tail = seen.tail();
      DG_ROLL
      for (u32 bucket = claim.buckets; bucket < after; ++bucket) {
        const u64 place = fresh + at.growth.slots_before(bucket) - before;
        if (bucket > 0) list().set_link(place, tail);
        tail = place;
      }
      const bool full = count == at.growth.values_through(after - 1);
      seen = GrowingHandle::of(full ? State::full : State::ready, count, tail);
      claim.fresh = fresh;
      claim.stored = static_cast<u32>(wanted);
    }
    atomic_store<Order::relaxed>(handle, seen.bits);
  }

  /// Stores the value before which an append stores `before` others.
  DG_FN void store(const Claim& claim, u64 before, Value value) const {
    const Growth& growth = at.growth;
    const u64 number = claim.before.count() + before;
    const u64 bucket = growth.buckets_for(number + 1) - 1;
    const u64 begin = bucket < claim.buckets ? claim.before.tail()
                                             : claim.fresh + growth.slots_before(bucket) -
                                                   growth.slots_before(claim.buckets);
    list().pool[begin + growth.link_of(bucket) + number - growth.values_before(bucket)] = value;
  }

  /// Appends a value.
  template <class Tile>
  DG_FN Outcome insert(Tile tile, Key key, Value value, Change) const {
    const Place to = place<Access::shared, true>(tile, key);
    if (to.slot == no_slot) return Outcome::refused;
    bool stored = false;
    if (tile.lane() == 0) stored = append_alone(handle_at(to.slot), to.handle, value);
    return tile.any(stored) ? Outcome::created : Outcome::refused;
  }

  template <class Tile>
  DG_FN u64 count(Tile tile, Key key) const {
    return place<Access::frozen>(tile, key).handle.count();
  }

  template <class Tile>
  DG_FN void gather(Tile tile, Key key, Value* to) const {
    copy(tile, place<Access::frozen>(tile, key).handle, to);
  }

  /// Writes a list's values in their order, bucket by bucket from the last one on.
  template <class Tile>
  DG_FN void copy(Tile tile, GrowingHandle handle, Value* to) const {
    copy_values(tile, handle, 0, handle.count(), to);
  }

  /// The same of values [first, last) of the list, which begins at `to`.
  template <class Tile>
  DG_FN void copy_values(Tile tile, GrowingHandle handle, u64 first, u64 last, Value* to) const {
    const Growth& growth = at.growth;
    u64 end = handle.count(), place = handle.tail();
    for (u64 bucket = growth.buckets_for(end); bucket-- > 0 && end > first;) {
      const Value* from = list().pool + place + growth.link_of(bucket);
      if (bucket > 0) place = list().link_at(place);
      const u64 begin = growth.values_before(bucket);
      const u64 stop = last < end ? last : end;
      for (u64 i = (first < begin ? begin : first) + tile.lane(); i < stop; i += Tile::size)
        to[i] = from[i - begin];
      end = begin;
    }
  }

  /// Its values stay in the pool, where nobody finds them.
  template <class Tile>
  DG_FN auto erase(Tile tile, Key key) const {
    const Place from = place<Access::shared>(tile, key);
    u32 values = 0;
    bool withdrawn = false;
    if (from.slot != no_slot && tile.lane() == 0) {
      u64* slot = words() + 2 * static_cast<u64>(from.slot);
      withdrawn = atomic_swap_if<Order::relaxed>(slot, word_of(key), word_of(Mark<Key>::erased)) ==
                  word_of(key);
      if (withdrawn) values = static_cast<u32>(from.handle.count());
      if (withdrawn) atomic_store<Order::relaxed>(slot + 1, ~0ull);
    }
    return Removed{tile.shuffle(values, 0), tile.any(withdrawn)};
  }

  /// The same by one lane, of reserved keys, too, which leave no mark.
  DG_FN auto erase(Key key) const {
    if (!is_reserved(key)) return erase(Tile<1>{}, key);
    const GrowingHandle handle{atomic_exchange<Order::relaxed>(
        handle_at(side_slot(side_index(key))), GrowingHandle::none().bits)};
    return Removed{static_cast<u32>(handle.count()), 0};
  }

  /// Lines that a search for the key reads.
  template <class Tile>
  DG_FN u64 probes(Tile tile, Key key) const {
    u64 lines = 0;
    walk<Access::frozen>(tile, key, [&](auto& seen, u32 visited) {
      const u32 stops = tile.ballot(seen.key_at() < seen.count || seen.gap_at() < seen.count);
      lines =
          visited + 1 + (stops == 0 ? (Tile::size - 1) / kQuarters : lowest_one(stops) / kQuarters);
      return stops != 0;
    });
    return lines;
  }

  DG_FN u64 places() const { return at.lines * kQuarters; }

  /// What a slot holds; the value is for tables that have one.
  DG_FN bool entry(u64 slot, Key& key, Value&) const {
    key = static_cast<Key>(words()[2 * slot]);
    return !is_reserved(key) && handle_in(slot).state() != State::uninitialised;
  }

  DG_FN GrowingHandle handle_in(u64 slot) const { return {words()[2 * slot + 1]}; }

  DG_FN void prefetch(Key key) const {
    dg::prefetch(words() + mulhi(hash_key(key, at.seed), at.lines) * kBucketBytes / sizeof(u64));
  }

 private:
  /// Keys are placed in one of so many lines of their sequence, or refused: at load 0.95 one of a million
  /// is, and what is fuller is to grow.
  static constexpr u32 most_lines = 64;

  DG_FN static u32 side_index(Key key) { return key == Mark<Key>::empty ? 0 : 1; }
  DG_FN static constexpr u32 side_slot(u32 index) { return no_slot - 1 - index; }

  DG_FN u64* words() const { return static_cast<u64*>(at.slots); }
  DG_FN BucketList<Value> list() const { return {static_cast<Value*>(at.values), at.growth}; }

  /// A key as a slot has it: the upper half of a short one is all ones, as in an EMPTY slot.
  DG_FN static u64 word_of(Key key) {
    if constexpr (sizeof(Key) == 8)
      return key;
    else
      return ~0ull << 32 | key;
  }

  DG_FN u64 room_of(const Claim& claim) const {
    return claim.buckets == 0 ? 0
                              : at.growth.values_through(claim.buckets - 1) - claim.before.count();
  }

  /// What a lane sees of the lines: neighbouring slots, from `first` on.
  template <u32 slots>
  struct Seen {
    static constexpr u32 count = slots;
    u64 wanted;
    u32 first;
    Quarter quarter[slots];

    DG_FN u64 word(u32 index, u32 half) const {
      return static_cast<u64>(quarter[index].word[2 * half + 1]) << 32 |
             quarter[index].word[2 * half];
    }
    DG_FN u32 index_of(u64 key) const {
      u32 place = count;
      DG_UNROLL
      for (u32 i = count; i-- > 0;)
        if (word(i, 0) == key) place = i;
      return place;
    }
    DG_FN u32 key_at() const { return index_of(wanted); }
    DG_FN u32 gap_at() const { return index_of(~0ull); }
    DG_FN u32 slot(u32 index) const { return first + index; }

    DG_FN GrowingHandle handle() const {
      const u32 place = key_at();
      u64 found = ~0ull;
      DG_UNROLL
      for (u32 i = 0; i < count; ++i)
        if (i == place) found = word(i, 1);
      return {found};
    }

    /// Another tile was faster: its key stands here.
    DG_FN void set(u32 index, u64 key) {
      DG_UNROLL
      for (u32 i = 0; i < count; ++i) {
        if (i != index) continue;
        quarter[i].word[0] = static_cast<u32>(key);
        quarter[i].word[1] = static_cast<u32>(key >> 32);
        quarter[i].word[2] = quarter[i].word[3] = ~0u;
      }
    }
  };

  /// Calls `look(seen, visited)` for the slots of a key's sequence, as many at a time as the tile can
  /// see, until it says to stop. Lower lanes see earlier slots; narrow tiles see a line in two steps.
  template <Access access, class Tile, class Look>
  DG_FN void walk(Tile tile, Key key, const Look& look) const {
    constexpr u32 each = Tile::size < kQuarters ? 2 : 1;
    constexpr u32 step = Tile::size < kQuarters ? each * Tile::size : kQuarters;
    const auto hash = [&] { return hash_key(key, at.seed); };
    SegmentedProbe<Tile::size> probe(at.lines, at.segment_shift, hash());
    DG_ROLL
    for (; probe.visited < most_lines; probe.next()) {
      const u32 line = static_cast<u32>(probe.bucket(tile.lane(), hash)) * kQuarters;
      DG_ROLL
      for (u32 part = 0; part < kQuarters; part += step) {
        Seen<each> seen;
        seen.wanted = word_of(key);
        seen.first = line + part + tile.lane() * each % kQuarters;
        const u64* from = words() + 2 * static_cast<u64>(seen.first);
        DG_UNROLL
        for (u32 i = 0; i < each; ++i) seen.quarter[i] = load_quarter<access, u64>(from + 2 * i);
        if (look(seen, probe.visited)) return;
      }
    }
  }

  template <class Tile>
  DG_FN static Place shared(Tile tile, u32 source, u32 slot, GrowingHandle handle) {
    return {tile.shuffle(slot, source), {tile.shuffle(handle.bits, source)}};
  }

  DG_FN bool append_alone(u64* handle, GrowingHandle seen, Value value) const {
    Claim claim{seen, 0, 0, 0};
    Try got = Try::again;
    for (u32 round = 0; got == Try::again && round < most_tries; ++round) {
      got = attempt(handle, seen, 1, claim);
      if (got == Try::again) wait(handle, round, seen);
    }
    if (got == Try::blocking) publish(handle, 1, at.pool.take(slots_for(claim, 1)), claim);
    if (claim.stored == 0) return false;
    if (claim.buckets == 0) atomic_add<Order::relaxed>(&at.state->links, 1);
    store(claim, 0, value);
    return true;
  }
};

}  // namespace dg

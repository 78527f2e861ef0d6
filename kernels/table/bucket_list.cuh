/// All values of a key in a linked list of growing buckets: the bucket list hash table, WarpCore
/// §IV-C.
///
/// The key table maps a key to its list handle; the handle is the only word that appends compete
/// for.
///
/// Invariants
///  * The leading slot of every bucket but a list's first is a link to the bucket before it. Links
///    and values are read in later launches only, so they need no order of their own.
///  * The sizes of a list's buckets follow from their number alone, so a handle needs no more than
///    the count and the tail, and the room left in the tail follows from the count.
///  * A tile that blocks a handle waits for nobody before it unblocks it.
#pragma once

#include "memory/pool.cuh"
#include "table/open.cuh"

namespace dg {

/// Packed: 2 bits state, 31 bits count of values, 31 bits tail (the first slot of the last bucket,
/// in grains).
struct ListHandle {
  enum class State : u32 { blocked = 0, ready = 1, full = 2, uninitialized = 3 };

  static constexpr u64 field = (1ull << 31) - 1;

  /// What a new key gets: the value of an empty slot, so that creating the key creates the handle.
  static constexpr u64 none = ~0ull;

  u64 bits;

  DG_FN static ListHandle make(State state, u64 count, u64 tail) {
    return {static_cast<u64>(state) << 62 | count << 31 | tail};
  }
  DG_FN State state() const { return static_cast<State>(bits >> 62); }
  DG_FN u64 count() const { return state() == State::uninitialized ? 0 : bits >> 31 & field; }
  DG_FN u64 tail() const { return bits & field; }
  DG_FN ListHandle with(State state) const { return make(state, count(), count() ? tail() : 0); }
};

/// How lists grow: s_i = ceil(growth * s_(i-1)), as a table that Python makes.
struct Growth {
  const u64*
      slots_end;  // pool slots of buckets 0 … i together, links included; each bucket whole grains
  u64 levels;     // at least 2; further buckets are as large as the last
  u64 grain_shift;  // a grain is 2^this slots: the unit of tails and links

  DG_FN u64 slots_through(u64 bucket) const {
    if (bucket < levels) return slots_end[bucket];
    const u64 last = slots_end[levels - 1];
    return last + (bucket - levels + 1) * (last - slots_end[levels - 2]);
  }
  DG_FN u64 slots_before(u64 bucket) const { return bucket == 0 ? 0 : slots_through(bucket - 1); }

  /// Values that buckets 0 … `bucket` hold: all slots but one link for each bucket after the first.
  DG_FN u64 values_through(u64 bucket) const { return slots_through(bucket) - bucket; }
  DG_FN u64 values_before(u64 bucket) const { return bucket == 0 ? 0 : values_through(bucket - 1); }

  /// The buckets that `count` values need.
  DG_FN u64 buckets_for(u64 count) const {
    if (count == 0) return 0;
    if (count > values_through(levels - 1)) {
      const u64 each = slots_through(levels) - slots_through(levels - 1) - 1;
      return levels + (count - values_through(levels - 1) + each - 1) / each;
    }
    u64 low = 0, high = levels - 1;
    while (low < high) {
      const u64 middle = (low + high) / 2;
      if (values_through(middle) < count)
        low = middle + 1;
      else
        high = middle;
    }
    return low + 1;
  }

  /// Pool slots that appending `added` values to `count` takes.
  DG_FN u64 slots_to_append(u64 count, u64 added) const {
    return slots_before(buckets_for(count + added)) - slots_before(buckets_for(count));
  }
};

template <class Key, class Value>
struct BucketList {
  using Keys = OpenTable<Key, u64>;

  Keys keys;
  Pool pool;
  Growth growth;

  /// What a run was given: values from `count` on, in the old tail as far as there is room, then in
  /// new buckets that stand one after the other from slot `fresh`.
  struct Grant {
    u64 count;
    u64 tail;
    u64 fresh;
    u32 refused;
  };

  DG_FN Value* slots() const { return static_cast<Value*>(pool.slots); }

  template <class Tile>
  DG_FN ListHandle handle_of(Tile tile, Key key) const {
    const auto stop = keys.template find<Access::frozen>(tile, key);
    u64 bits = ListHandle::none;
    if (stop.end == Keys::End::key && tile.lane() == stop.lane) bits = keys.value_of(stop);
    return {tile.shuffle(bits, stop.lane)};
  }

  /// Appends `length` > 0 values in order; false when the key or the values found no place, and
  /// then nothing of the run is stored. `planned` slots from `place` on are this run's; without
  /// them, or when they are too few because another run came first, the pool is asked.
  template <class Tile>
  DG_FN bool append(Tile tile, Key key, const Value* values, u64 length, u64 place, u64 planned,
                    u64 limit, bool& created) const {
    const auto placed = keys.insert(tile, key, ListHandle::none, limit);
    created = placed.outcome == Outcome::created;
    if (placed.outcome == Outcome::refused) return false;
    Grant grant{0, 0, 0, 1};
    if (tile.lane() == placed.lane)
      grant = reserve(keys.value_at(placed.slot), length, place, planned);
    if (tile.shuffle(grant.refused, placed.lane)) return false;
    grant.count = tile.shuffle(grant.count, placed.lane);
    grant.tail = tile.shuffle(grant.tail, placed.lane);
    grant.fresh = tile.shuffle(grant.fresh, placed.lane);
    write(tile, values, length, grant);
    return true;
  }

  /// Writes the values of a list in the order in which they were appended.
  template <class Tile>
  DG_FN void retrieve(Tile tile, ListHandle handle, Value* out) const {
    u64 end = handle.count();
    u64 bucket = growth.buckets_for(end);
    u64 tail = handle.tail();
    while (bucket-- > 0) {
      const Value* from = slots() + (tail << growth.grain_shift);
      // The next link is on its way while the values are copied.
      if (bucket > 0) tail = static_cast<u64>(*from++);
      const u64 begin = growth.values_before(bucket);
      copy(tile, from, out + begin, end - begin);
      end = begin;
    }
  }

 private:
  template <class Tile>
  DG_FN static void copy(Tile tile, const Value* from, Value* to, u64 length) {
    for (u64 i = tile.lane(); i < length; i += Tile::size) to[i] = from[i];
  }

  /// One lane's part: counts the run in, and gets it room. Acquire and release on the handle order
  /// the tiles that append to one key; the values themselves are read in later launches only.
  DG_FN Grant reserve(u64* handle, u64 length, u64 place, u64 planned) const {
    using State = ListHandle::State;
    u32 pause = 32;
    while (true) {
      const ListHandle seen{atomic_load<Order::acquire>(handle)};
      if (seen.state() == State::blocked) {
        back_off(pause);
        continue;
      }
      const u64 count = seen.count();
      if (length > ListHandle::field - count) return Grant{0, 0, 0, 1};
      const u64 buckets = growth.buckets_for(count);
      if (buckets > 0 && count + length <= growth.values_through(buckets - 1)) {
        const auto longer = ListHandle::make(State::ready, count + length, seen.tail());
        if (swap(handle, seen, longer)) return Grant{count, seen.tail(), 0, 0};
        continue;
      }
      if (!swap(handle, seen, seen.with(State::blocked))) continue;
      const u64 wanted = growth.slots_to_append(count, length);
      const u64 fresh = wanted <= planned ? place : pool.take(wanted);
      if (fresh == Pool::exhausted) {
        const auto back = count == 0 ? ListHandle{ListHandle::none} : seen.with(State::full);
        atomic_store<Order::release>(handle, back.bits);
        return Grant{0, 0, 0, 1};
      }
      const u64 last = growth.buckets_for(count + length) - 1;
      const u64 at = fresh + growth.slots_before(last) - growth.slots_before(buckets);
      const auto grown = ListHandle::make(State::ready, count + length, at >> growth.grain_shift);
      atomic_store<Order::release>(handle, grown.bits);
      return Grant{count, count ? seen.tail() : 0, fresh, 0};
    }
  }

  DG_FN static bool swap(u64* handle, ListHandle from, ListHandle to) {
    return atomic_swap_if<Order::acquire_release>(handle, from.bits, to.bits) == from.bits;
  }

  template <class Tile>
  DG_FN void write(Tile tile, const Value* values, u64 length, const Grant& grant) const {
    u64 bucket = growth.buckets_for(grant.count);
    u64 written = 0;
    if (bucket > 0) {
      const u64 begin = growth.values_before(bucket - 1);
      const u64 room = growth.values_through(bucket - 1) - grant.count;
      written = room < length ? room : length;
      copy(tile, values,
           slots() + (grant.tail << growth.grain_shift) + (bucket > 1) + (grant.count - begin),
           written);
    }
    u64 before = grant.tail;
    for (u64 at = grant.fresh; written < length; ++bucket) {
      const u64 room = growth.values_through(bucket) - growth.values_before(bucket);
      const u64 part = room < length - written ? room : length - written;
      if (bucket > 0 && tile.lane() == 0) slots()[at] = static_cast<Value>(before);
      copy(tile, values + written, slots() + at + (bucket > 0), part);
      before = at >> growth.grain_shift;
      at += growth.slots_through(bucket) - growth.slots_before(bucket);
      written += part;
    }
  }
};

}  // namespace dg

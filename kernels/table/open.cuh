/// Open addressing with cooperative probing (WarpCore §IV-B): sets, maps, and the key table of
/// bucket lists.
///
/// Invariants
///  * A new key takes the first EMPTY slot of its probe sequence, so equal keys meet and only one is
///    stored.
///  * No key stands beyond a bucket that has an EMPTY slot or that no such key has passed, as the
///    overflow filter tells, so a search stops there. A bucket that any key has passed never gets an
///    EMPTY slot again: erasing leaves ERASED there, which inserting never takes, and EMPTY elsewhere.
///  * The value of every slot without a key is all ones, so that clearing is one fill with 0xFF.
///  * Launches that insert, erase and read do not overlap; the backend's stream keeps them apart.
#pragma once

#include "core/atomic.cuh"
#include "core/bucket.cuh"
#include "core/hash.cuh"
#include "core/tile.cuh"
#include "probe/segmented.cuh"
#include "table/open_slots.cuh"
#include "table/rows/lines.cuh"

namespace dg {

template <class Key, class Value>
struct OpenWalks;

template <class KeyType, class ValueType>
struct OpenTable : OpenSlots<KeyType, ValueType> {
  using Own = OpenSlots<KeyType, ValueType>;
  using Own::at;
  using Own::replace;
  using Own::reserved;
  using Own::side;
  using Own::side_index;
  using typename Own::Key;
  using typename Own::Slots;
  using typename Own::Value;

  template <class Tile>
  using Probe = SegmentedProbe<Tile::size>;

  static constexpr u64 unlimited = ~0ull;

  enum class End : u32 { key, empty, nowhere, later };

  /// Where a walk ended. Only `lane` knows the slot and the value, so that nothing is shuffled in
  /// vain.
  struct Stop {
    End end;
    u32 lane;
    u64 slot;
    Value value;
  };

  /// What an insert did, and which lane knows the slot; for a key in a side slot `slot` is
  /// `side(0)` or `side(1)`.
  struct Placed {
    Outcome outcome;
    u32 lane;
    u64 slot;
  };

  /// What became of a key that was to be removed; later: another bucket comes first.
  struct Removed {
    bool erased;
    bool left_mark;
    bool later;
  };

  /// What a walk ends at: the key alone, or the place for it too.
  enum class Goal { key, place };

  DG_FN auto overflow() const {
    return OverflowFilter<overflow_bits(Slots::per_bucket)>{at.overflow};
  }

  DG_FN const char* quarter(u64 bucket, u32 index) const {
    return static_cast<const char*>(at.keys) + bucket * kBucketBytes + index * kQuarterBytes;
  }

  DG_FN u64 hash_of(Key key) const { return hash_key(key, at.seed); }
  DG_FN u64 first_bucket(Key key) const { return mulhi(hash_of(key), at.buckets); }

  /// Follows the probe sequence to `key`, or to where it ends: for `Goal::place` at the first EMPTY slot, and
  /// the buckets before that are told. `probe` stays at the buckets where the walk ended, so that it can be
  /// taken up again there.
  template <Goal goal, Access access, class Tile>
  DG_FN Stop walk(Tile tile, Key key, Probe<Tile>& probe) const {
    // Narrow tiles read a bucket in several steps.
    constexpr u32 steps = Tile::size < kQuarters ? kQuarters / Tile::size : 1;
    for (; !probe.ended(); probe.next()) {
      const u64 bucket = probe.bucket(tile.lane(), [&] { return hash_of(key); });
      [[maybe_unused]] Stop gap{End::nowhere, 0, 0, Value{}};
      [[maybe_unused]] bool last = false;
      if constexpr (goal == Goal::key)
        last = !overflow().template passed<access>(bucket, probe.low);
      DG_UNROLL
      for (u32 step = 0; step < steps; ++step) {
        const u32 part = (step * Tile::size + tile.lane()) % kQuarters;
        const Quarter seen = this->template load<access>(bucket, part);
        const Sight sight = scan(seen, key);
        const u64 first = bucket * Slots::per_bucket + part * Slots::per_quarter;
        const u32 hits = tile.ballot(sight.hit < Slots::per_quarter);
        if (hits) return stop_at_key(seen, sight, lowest_one(hits), first);
        const bool has_gap = sight.gap < Slots::per_quarter;
        if constexpr (goal == Goal::key) {
          last = last || has_gap;
        } else {
          const u32 gaps = tile.ballot(has_gap);
          if (gaps && gap.end == End::nowhere)
            gap = Stop{End::empty, lowest_one(gaps), first + sight.gap, Value{}};
        }
      }
      if constexpr (goal == Goal::key) {
        if (tile.any(last)) break;
      } else if (gap.end == End::empty) {
        pass_all(tile, key, probe, probe.visited + gap.lane / kQuarters);
        return gap;
      }
    }
    return Stop{End::nowhere, 0, 0, Value{}};
  }

  /// Stores the pair unless the key is there. Beyond `limit` slots in use no new key is placed.
  /// Without a limit the caller counts the created keys; with one they are counted here, before
  /// they are placed: what is counted and not placed is given back, so `occupied` may be too high
  /// for a moment only.
  template <class Tile>
  DG_FN Placed insert(Tile tile, Key key, Value value, u64 limit) const {
    auto probe = probe_of<Tile>(key);
    return insert_by(
        tile, key, value, limit,
        [&] { return walk<Goal::place, Access::shared>(tile, key, probe); },
        [&](const Stop& stop) { return probe.visited + stop.lane / kQuarters; });
  }

  /// The same; `seek` walks to the key or a place for it, and `passed` says how many buckets come before
  /// that.
  template <class Tile, class Seek, class Passed>
  DG_FN Placed insert_by(Tile tile, Key key, Value value, u64 limit, const Seek& seek,
                         const Passed& passed) const {
    if (reserved(key)) return insert_aside(tile, key, value, limit);
    bool booked = false;
    while (true) {
      const Stop stop = seek();
      Outcome outcome = stop.end == End::key     ? Outcome::existed
                        : stop.end == End::later ? Outcome::later
                                                 : Outcome::refused;
      if (stop.end == End::empty) {
        if (limit != unlimited && !booked) booked = book(tile, limit);
        if (limit == unlimited || booked) {
          Outcome swapped = Outcome::refused;
          if (tile.lane() == stop.lane) swapped = this->publish(stop.slot, key, value);
          swapped = static_cast<Outcome>(tile.shuffle(static_cast<u32>(swapped), stop.lane));
          // Another key took the slot: read the same buckets again.
          if (swapped == Outcome::refused) continue;
          outcome = swapped;
          if (outcome == Outcome::created && tile.lane() == 0 &&
              strays(passed(stop), at.segment_shift))
            atomic_add<Order::relaxed>(&at.state->strayed, 1);
        }
      }
      if (booked && outcome != Outcome::created && tile.lane() == 0)
        atomic_add<Order::relaxed>(&at.state->occupied, ~0ull);
      return Placed{outcome, stop.lane, stop.slot};
    }
  }

  /// The value of a key that was found; called by the lane that knows the slot.
  DG_FN Value value_of(const Stop& stop) const {
    if constexpr (Slots::paired)
      return stop.value;
    else if constexpr (Slots::has_value)
      return stop.slot >= side(1) ? stop.value : static_cast<const Value*>(at.values)[stop.slot];
    else
      return Value{};
  }

  /// Buckets that a search reads until it meets one that is `wanted` or certain to be the last.
  template <class Wanted>
  DG_FN u64 lines_until(u64 hash, const Wanted& wanted) const {
    SegmentedProbe<1> probe(at.buckets, at.segment_shift, hash);
    const auto bucket = [&] { return probe.bucket(0, [&] { return hash; }); };
    u64 lines = 1;
    for (; !wanted(bucket()) && goes_on(probe, bucket()); ++lines) probe.next();
    return lines;
  }

  using Sight = typename Lines<Slots>::Sight;

  DG_FN static Sight scan(const Quarter& seen, Key key) { return Lines<Slots>::scan(seen, key); }

 protected:
  friend struct OpenWalks<KeyType, ValueType>;

  /// Tells the full buckets before a key's place that it passes them. There are few, and one lane, in
  /// a loop that all lanes run, takes the fewest registers.
  template <class Tile>
  DG_FN void pass_all(Tile tile, Key key, const Probe<Tile>& probe, u32 count) const {
    DG_ROLL
    for (u32 steps = 0; steps < count; ++steps)
      if (tile.lane() == 0)
        overflow().pass(probe.in_order(steps, [&] { return hash_of(key); }), probe.low);
  }

  /// Of a search by one lane.
  DG_FN bool goes_on(SegmentedProbe<1> probe, u64 bucket) const {
    if (bucket_has_gap(bucket)) return false;
    probe.next();
    return overflow().template passed<Access::frozen>(bucket, probe.low) && !probe.ended();
  }

  DG_FN bool bucket_has_gap(u64 bucket) const {
    bool gap = false;
    for (u32 part = 0; part < kQuarters; ++part) {
      const Quarter seen =
          load_quarter<Access::frozen, typename Slots::Unit>(quarter(bucket, part));
      gap = gap || scan(seen, Mark<Key>::empty).gap < Slots::per_quarter;
    }
    return gap;
  }

  template <class Tile>
  DG_FN Probe<Tile> probe_of(Key key) const {
    return Probe<Tile>(at.buckets, at.segment_shift, hash_of(key));
  }

  DG_FN static Stop stop_at_key(const Quarter& seen, const Sight& sight, u32 lane, u64 first) {
    Stop stop{End::key, lane, first + sight.hit, Value{}};
    if constexpr (Slots::paired) {
      DG_UNROLL
      for (u32 i = 0; i < Slots::per_quarter; ++i)
        if (i == sight.hit) stop.value = Slots::value(seen, i);
    }
    return stop;
  }

  DG_FN Stop find_aside(Key key) const {
    const u32 index = side_index(key);
    Stop stop{End::nowhere, 0, side(index), Value{}};
    if (at.state->side_present[index]) stop.end = End::key;
    if constexpr (Slots::has_value) stop.value = static_cast<Value>(at.state->side_value[index]);
    return stop;
  }

  template <class Tile>
  DG_FN bool book(Tile tile, u64 limit) const {
    u32 granted = 0;
    if (tile.lane() == 0) {
      // `erased` does not change while keys are inserted.
      const u64 used = atomic_fetch_add<Order::relaxed>(&at.state->occupied, 1) + at.state->erased;
      granted = used < limit;
      if (!granted) atomic_add<Order::relaxed>(&at.state->occupied, ~0ull);
    }
    return tile.shuffle(granted, 0) != 0;
  }

  /// The side slots are outside of `limit`: they take no room.
  template <class Tile>
  DG_FN Placed insert_aside(Tile tile, Key key, Value value, u64 limit) const {
    const u32 index = side_index(key);
    u32 created = 0;
    if (tile.lane() == 0) {
      created = atomic_swap_if<Order::relaxed>(&at.state->side_present[index], 0ull, 1ull) == 0;
      if (created) {
        if constexpr (Slots::has_value) {
          if (value != ~Value{0}) replace(side(index), key, value);
        }
        if (limit != unlimited) atomic_add<Order::relaxed>(&at.state->occupied, 1);
      }
    }
    created = tile.shuffle(created, 0);
    return Placed{created ? Outcome::created : Outcome::existed, 0, side(index)};
  }

  DG_FN Removed erase_at(u64 slot, Key key) const {
    // The answer does not change while keys are only erased, so all lanes at this bucket agree.
    const bool passed = overflow().template overflowed<Access::shared>(slot / Slots::per_bucket);
    const bool erased = this->withdraw(slot, key, passed ? Mark<Key>::erased : Mark<Key>::empty);
    return Removed{erased, erased && passed, false};
  }

  DG_FN Removed erase_aside(Key key) const {
    const u32 index = side_index(key);
    const bool erased =
        atomic_swap_if<Order::relaxed>(&at.state->side_present[index], 1ull, 0ull) == 1;
    if (erased) atomic_store<Order::relaxed>(&at.state->side_value[index], ~0ull);
    return Removed{erased, false, false};
  }
};

}  // namespace dg

/// Walks through an open-addressing table that one lane of a CPU takes step by step, in turns with
/// others (grid/interleaved.cuh). A step reads a bucket as a whole.
#pragma once

#include "table/open.cuh"

namespace dg {

#if !DG_GPU

template <class KeyType, class ValueType>
struct OpenWalks {
  using Table = OpenTable<KeyType, ValueType>;
  using Slots = typename Table::Slots;
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Stop = typename Table::Stop;
  using End = typename Table::End;
  using Goal = typename Table::Goal;
  using Lone = Tile<1>;

  Table table;

  /// The bucket that comes next, which is asked for, and how many come before it.
  struct Walk {
    u64 bucket;
    u32 steps;
  };

  Walk begin(Key key) const {
    const Walk walk{table.first_bucket(key), 0};
    ask_for(walk.bucket);
    return walk;
  }

  /// Where the key stands, the side slots included, or `End::later`.
  template <Access access = Access::frozen>
  Stop find(Key key, Walk& walk) const {
    if (table.reserved(key)) return table.find_aside(key);
    return step<access, Goal::key>(key, walk);
  }

  /// `OpenTable::insert`, or `Outcome::later`.
  typename Table::Placed insert(Key key, Value value, u64 limit, Walk& walk) const {
    return table.insert_by(
        Lone{}, key, value, limit, [&] { return step<Access::shared, Goal::place>(key, walk); },
        [&](const Stop&) { return walk.steps; });
  }

  /// Removes the key, or another bucket comes first.
  typename Table::Removed erase(Key key, Walk& walk) const {
    if (table.reserved(key)) return table.erase_aside(key);
    const Stop stop = step<Access::shared, Goal::key>(key, walk);
    if (stop.end == End::key) return table.erase_at(stop.slot, key);
    return {false, false, stop.end == End::later};
  }

 private:
  /// One bucket of the walk.
  template <Access access, Goal goal>
  Stop step(Key key, Walk& walk) const {
    Quarter seen[kQuarters];
    for (u32 part = 0; part < kQuarters; ++part)
      if constexpr (kClaimed<Key>)
        seen[part] = table.template load<access>(walk.bucket, part);
      else
        // Right here: by way of `load` GCC takes the vector apart, which made inserts a fifth slower.
        seen[part] = load_quarter<access, typename Slots::Unit>(table.quarter(walk.bucket, part));
    // In equal time whatever stands where: branches that nobody foresees take as long as all slots.
    const u32 hits = slots_with<Slots::nbytes>(seen, key);
    const u32 gaps = slots_with<Slots::nbytes>(seen, Mark<Key>::empty);
    const u64 first = walk.bucket * Slots::per_bucket;
    if (hits != 0) {
      const u32 hit = lowest_one(hits);
      Stop stop{End::key, 0, first + hit, Value{}};
      if constexpr (Slots::paired)
        stop.value = Slots::value(seen[hit / Slots::per_quarter], hit % Slots::per_quarter);
      return stop;
    }
    const Stop nowhere{End::nowhere, 0, 0, Value{}};
    auto probe = table.template probe_of<Lone>(key);
    probe.visited = walk.steps;
    if (gaps != 0) {
      if constexpr (goal == Goal::place) table.pass_all(Lone{}, key, probe, walk.steps);
      return Stop{End::empty, 0, first + lowest_one(gaps), Value{}};
    }
    if (goal == Goal::key && !table.overflow().template passed<access>(walk.bucket, probe.low))
      return nowhere;
    probe.next();
    if (probe.ended()) return nowhere;
    walk = {probe.bucket(0, [&] { return table.hash_of(key); }), probe.visited};
    ask_for(walk.bucket);
    return Stop{End::later, 0, 0, Value{}};
  }

  /// Values that stand elsewhere are asked for, too: or a lane waits at each value, and each
  /// compare-and-swap for the value before it.
  void ask_for(u64 bucket) const {
    prefetch(table.quarter(bucket, 0));
    if constexpr (Slots::has_value && !Slots::paired) {
      constexpr u32 nbytes = Slots::per_bucket * sizeof(Value);
      const char* const values = static_cast<const char*>(table.at.values) + bucket * nbytes;
      for (u32 line = 0; line < nbytes; line += kBucketBytes) prefetch(values + line);
    }
  }
};

#endif

}  // namespace dg

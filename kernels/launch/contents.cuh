/// What a table holds: its keys and values in storage order, or moved to another table, and how far
/// the keys stand from home. A row is a bucket, of open_rehash a slot. Keys in the side slots are left
/// to Python, which reads OpenState anyway.
#pragma once

#include "core/fields.cuh"
#include "grid/interleaved.cuh"
#include "grid/work_split.cuh"
#include "table/open_rows.cuh"
#include "table/open_walks.cuh"

namespace dg {

struct OpenCountArgs {
  OpenStorage table;
  u32* counts;  // keys in each bucket
  u64 n;        // buckets

  DG_FIELDS(table, counts, n)
};

struct OpenItemsArgs {
  OpenStorage table;
  const u64* offsets;  // where each bucket's keys go: the exclusive sums of its counts
  void* keys;
  void* values;  // or null
  u64 n;         // buckets

  DG_FIELDS(table, offsets, keys, values, n)
};

struct OpenPlaceArgs {
  OpenStorage table;   // buckets and values may hold anything
  const u64* offsets;  // where each bucket's keys begin, and where the last one's end
  const void* keys;
  const void* values;  // or null
  u64* placed;         // added to: keys that are no marks
  u64 n;               // buckets

  DG_FIELDS(table, offsets, keys, values, placed, n)
};

struct OpenLinesArgs {
  OpenStorage table;
  u64* present;  // added to: buckets that a search for each stored key reads
  u64* absent;   // added to: buckets that `n` searches for keys that are not there read
  u64 n;         // buckets

  DG_FIELDS(table, present, absent, n)
};

struct OpenRehashArgs {
  OpenStorage table;
  OpenStorage target;  // has room for all
  u64 n;               // slots

  DG_FIELDS(table, target, n)
};

template <class Key>
DG_FN bool live(Key key) {
  return key < Mark<Key>::erased;
}

/// Calls `visit(part, quarter)` for the quarters of a bucket that this lane reads.
template <class Slots, class Tile, class Visit>
DG_FN void for_each_quarter(Tile tile, const OpenStorage& table, u64 bucket, const Visit& visit) {
  constexpr u32 steps = Tile::size < kQuarters ? kQuarters / Tile::size : 1;
  static_assert(Tile::size <= kQuarters, "a tile reads one bucket");
  for (u32 step = 0; step < steps; ++step) {
    const u32 part = step * Tile::size + tile.lane();
    const char* from =
        static_cast<const char*>(table.keys) + bucket * kBucketBytes + part * kQuarterBytes;
    visit(part, load_quarter<Access::frozen, typename Slots::Unit>(from));
  }
}

template <class Key, class Value, int W>
DG_KERNEL open_count(OpenCountArgs args) {
  using Slots = Slot<Key, Value>;
  for_each_tile<W>(args.n, [&](auto tile, u64 bucket) {
    u32 count = 0;
    for_each_quarter<Slots>(tile, args.table, bucket, [&](u32, const Quarter& quarter) {
      DG_UNROLL
      for (u32 i = 0; i < Slots::per_quarter; ++i)
        count += count_ones(tile.ballot(live(Slots::key(quarter, i))));
    });
    if (tile.lane() == 0) args.counts[bucket] = count;
  });
}

template <class Key, class Value, int W>
DG_KERNEL open_items(OpenItemsArgs args) {
  using Slots = Slot<Key, Value>;
  using Stored = typename Slots::Value;
  for_each_tile<W>(args.n, [&](auto tile, u64 bucket) {
    u64 place = args.offsets[bucket];
    for_each_quarter<Slots>(tile, args.table, bucket, [&](u32 part, const Quarter& quarter) {
      // The keys of lower lanes in this step go before mine, those of higher lanes after.
      u32 before = 0, all = 0;
      DG_UNROLL
      for (u32 i = 0; i < Slots::per_quarter; ++i) {
        const u32 lanes = tile.ballot(live(Slots::key(quarter, i)));
        before += count_ones(lanes & ones_below(tile.lane()));
        all += count_ones(lanes);
      }
      u64 mine = place + before;
      place += all;
      DG_UNROLL
      for (u32 i = 0; i < Slots::per_quarter; ++i) {
        const Key key = Slots::key(quarter, i);
        if (!live(key)) continue;
        static_cast<Key*>(args.keys)[mine] = key;
        if constexpr (Slots::has_value) {
          if (args.values) {
            Stored value;
            if constexpr (Slots::paired)
              value = Slots::value(quarter, i);
            else
              value = static_cast<const Stored*>(
                  args.table.values)[bucket * Slots::per_bucket + part * Slots::per_quarter + i];
            static_cast<Stored*>(args.values)[mine] = value;
          }
        }
        ++mine;
      }
    });
  });
}

/// The inverse of `open_items`: a bucket's keys take its first slots, and the others are empty.
template <class Key, class Value, int W>
DG_KERNEL open_place(OpenPlaceArgs args) {
  using Slots = Slot<Key, Value>;
  using Stored = typename Slots::Value;
  static_assert(W <= static_cast<int>(kQuarters), "a tile writes one bucket");
  const Key* keys = static_cast<const Key*>(args.keys);
  [[maybe_unused]] const Stored* values = static_cast<const Stored*>(args.values);
  for_each_tile<W>(
      args.n, Totals<1>{{args.placed}},
      [&](auto tile, u64 bucket, Tally<1>& placed) {
        const u64 first = args.offsets[bucket];
        const u32 held = static_cast<u32>(args.offsets[bucket + 1] - first);
        for (u32 part = tile.lane(); part < kQuarters; part += tile.size) {
          Quarter quarter{{~0u, ~0u, ~0u, ~0u}};
          DG_UNROLL
          for (u32 i = 0; i < Slots::per_quarter; ++i) {
            const u32 slot = part * Slots::per_quarter + i;
            const bool taken = slot < held;
            Stored value{};
            if constexpr (Slots::has_value) value = taken ? values[first + slot] : ~Stored{0};
            if (taken) {
              const Key key = keys[first + slot];
              placed.of[0] += live(key);
              Slots::put(quarter, i, key, value);
            }
            if constexpr (Slots::has_value && !Slots::paired)
              static_cast<Stored*>(args.table.values)[bucket * Slots::per_bucket + slot] = value;
          }
          store_quarter(
              static_cast<char*>(args.table.keys) + bucket * kBucketBytes + part * kQuarterBytes,
              quarter);
        }
      },
      NoPrefetch{});
}

template <class Key, class Value, int W>
DG_KERNEL open_lines(OpenLinesArgs args) {
  using Table = OpenTable<Key, Value>;
  using Slots = typename Table::Slots;
  const Table table{args.table};
  for_each_tile<W>(
      args.n, Totals<2>{{args.present, args.absent}},
      [&](auto tile, u64 bucket, Tally<2>& lines) {
        for_each_quarter<Slots>(tile, args.table, bucket, [&](u32, const Quarter& quarter) {
          for (u32 i = 0; i < Slots::per_quarter; ++i) {
            const Key key = Slots::key(quarter, i);
            if (live(key))
              lines.of[0] += table.lines_until(hash_key(key, args.table.seed),
                                               [&](u64 passed) { return passed == bucket; });
          }
        });
        if (tile.lane() == 0)
          lines.of[1] += table.lines_until(mix(bucket), [](u64) { return false; });
      },
      NoPrefetch{});
}

template <class Key, class Value, int W>
DG_KERNEL open_rehash(OpenRehashArgs args) {
  using Table = OpenRows<Key, Value>;
  using Slots = typename Table::Slots;
  const Table target{args.target};
  const auto key_at = [&](u64 slot) {
    return reinterpret_cast<const Key*>(static_cast<const char*>(args.table.keys) +
                                        slot * Slots::nbytes);
  };
  const auto value_at = [&](u64 slot) -> typename Table::Value {
    if constexpr (Slots::paired)
      return key_at(slot)[1];
    else if constexpr (Slots::has_value)
      return static_cast<const typename Table::Value*>(args.table.values)[slot];
    else
      return {};
  };
  const Totals<1> totals{{&args.target.state->occupied}};
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, Value> walks{target};
    for_each_in_turns(
        args.n, totals,
        [&](u64 slot) {
          const Key key = *key_at(slot);
          return live(key) ? walks.begin(key) : decltype(walks.begin(key)){};
        },
        [&](u64 slot, auto& walk, Tally<1>& moved) {
          const Key key = *key_at(slot);
          if (!live(key)) return false;
          if (walks.insert(key, value_at(slot), Table::unlimited, walk).outcome == Outcome::later)
            return true;
          ++moved.of[0];
          return false;
        });
  } else {
    for_each_share<W>(args.n, totals, [&](auto tile, auto& slots, Tally<1>& moved) {
      target.template insert_rows<Access::shared>(
          tile, slots, Table::unlimited,
          [&](u64 slot, Key& key, typename Table::Value& value) {
            key = *key_at(slot);
            value = value_at(slot);
            return live(key);
          },
          [&](u64, const auto&) { ++moved.of[0]; });
    });
  }
}

}  // namespace dg

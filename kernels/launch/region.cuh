/// Batches in the order of a table's regions, or of their hashes: inserts without, or with few, atomics.
#pragma once

#include "core/block_atomic.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "launch/open.cuh"
#include "table/open.cuh"
#include "table/region.cuh"

namespace dg {

struct RegionInsertArgs {
  OpenStorage table;
  const void* keys;    // in the order of the regions where they begin
  const void* values;  // unused by sets
  const u64* starts;   // the first row of each part of the batch, and the last one's end
  void* left_keys;     // rows whose place is not in their region, as many as `state->pending` says
  void* left_values;
  u32* created;      // or null; a bit for each slot: its key is new
  u64 blank;         // 1: the regions are empty, and their memory holds anything
  u64 first;         // region
  u64 part_shift;    // a part of the batch has the rows of 2^this regions, in any order
  u64 segment_rows;  // what a region costs, in rows
  u64 n;             // regions

  DG_FIELDS(table, keys, values, starts, left_keys, left_values, created, blank, first, part_shift,
            segment_rows, n)
};

struct RegionClaimArgs {
  OpenStorage table;
  u32* created;  // bits of slots, those of the side slots last
  const void* keys;
  const void* values;
  u8* fresh;
  u64 marking;  // 1: sets the bits of keys whose row is fresh; 0: makes one row of each bit fresh
  u64 n;

  DG_FIELDS(table, created, keys, values, fresh, marking, n)
};

/// Rows that a lane reads before it stores any; where values stand elsewhere, more would spill.
template <class Slots>
inline constexpr u32 kRegionItems = Slots::has_value && !Slots::paired ? 2 : 4;

/// Rows that the region has no place for go to the list of those that are left.
template <class Key, class Value, class Tile>
DG_FN void leave_refused(Tile tile, const RegionInsertArgs& args, Step step, Key key, Value value) {
  const u32 left = tile.ballot(step == Step::refused);
  if (left == 0) return;
  u64 place = 0;
  if (tile.lane() == 0)
    place = atomic_fetch_add<Order::relaxed>(&args.table.state->pending, count_ones(left));
  place = tile.shuffle(place, 0) + count_ones(left & ones_below(tile.lane()));
  if (step == Step::refused) {
    static_cast<Key*>(args.left_keys)[place] = key;
    if constexpr (!same<Value, NoValue>) static_cast<Value*>(args.left_values)[place] = value;
  }
}

/// Stores rows that begin in the region. A row whose first bucket is full is put off, so that
/// lanes do not wait for the few that walk on.
template <class Key, class Region, class Block>
DG_FN void insert_rows(Block block, const Region& region, const RegionInsertArgs& args, u64 first,
                       u64 last) {
  using Value = typename Region::Value;
  using Table = typename Region::Table;
  constexpr u32 items = kRegionItems<typename Region::Slots>;
  const auto tile = block.tile();
  auto& memory = region.memory;
  const Key* keys = static_cast<const Key*>(args.keys) + first;
  const u32 rows = static_cast<u32>(last - first);
  const auto value_of = [&](u32 row) { return value_in_row<Table>(args.values, first + row); };
  u32 created = 0;
  for (u32 start = 0; start < rows; start += items * Block::threads) {
    Key key[items];
    Value value[items];
    DG_UNROLL
    for (u32 i = 0; i < items; ++i) {
      const u32 row = start + i * Block::threads + block.thread();
      if (row < rows) {
        key[i] = keys[row];
        value[i] = value_of(row);
      }
    }
    DG_UNROLL
    for (u32 i = 0; i < items; ++i) {
      const u32 row = start + i * Block::threads + block.thread();
      Step step = Step::existed;
      RegionWalk walk{};
      bool here = false;
      if (row < rows) {
        walk = region.begin(key[i]);
        here = region.has(walk.first);
      }
      if (here) {
        step = Table::reserved(key[i]) ? Step::refused : region.step(walk, key[i], value[i]);
        if (step == Step::on) {
          const u32 place = block_fetch_add(&memory.later_count, 1);
          if (place < kLaterRows)
            memory.later[place] = row;
          else
            step = Step::refused;
        }
      }
      created += step == Step::created;
      leave_refused(tile, args, step, key[i], value[i]);
    }
  }
  block.sync();
  const u32 later = memory.later_count < kLaterRows ? memory.later_count : kLaterRows;
  Step step = Step::existed;
  Key key{};
  Value value{};
  RegionWalk walk = region.begin(key);
  while (true) {
    const u32 idle = tile.ballot(step != Step::on);
    u32 place = 0;
    if (tile.lane() == 0) place = block_fetch_add(&memory.later_taken, count_ones(idle));
    place = tile.shuffle(place, 0) + count_ones(idle & ones_below(tile.lane()));
    if (step != Step::on) {
      step = Step::existed;
      if (place < later) {
        const u32 row = memory.later[place];
        key = keys[row];
        value = value_of(row);
        walk = region.begin(key);
        step = Step::on;
      }
    }
    if (!tile.any(step == Step::on)) break;
    const bool walking = step == Step::on;
    if (walking) step = region.step(walk, key, value);
    created += step == Step::created;
    leave_refused(tile, args, step, key, value);
  }
  DG_UNROLL
  for (u32 distance = 1; distance < Block::Lanes::size; distance *= 2)
    created += tile.shuffle(created, tile.lane() ^ distance);
  if (tile.lane() == 0 && created != 0) block.add(&memory.created_count, created);
}

template <class Key, class Value, class Memory>
DG_FN auto region_at(const RegionInsertArgs& args, Memory& memory, u64 number) {
  const u64 first = number << kRegionShift, left = args.table.buckets - first;
  const u32 buckets = left < kRegionBuckets ? static_cast<u32>(left) : kRegionBuckets;
  return OpenRegion<Key, Value, Memory>{{{args.table}}, memory, first, buckets, args.blank != 0};
}

template <class Key, class Value, u32 Threads>
DG_BLOCK_KERNEL(Threads)
region_insert(Sharing<RegionInsertArgs, Threads, RegionOf<Key, Value>::template Memory> args) {
  for_each_block(args, [&](auto block, auto& memory, u64 number) {
    const auto region = region_at<Key, Value>(args, memory, args.first + number);
    load_region(block, region);
    block.sync();
    const u64* bounds = args.starts + (number >> args.part_shift);
    insert_rows<Key>(block, region, args, bounds[0], bounds[1]);
    block.sync();
    store_region(block, region, args.created);
    if (block.thread() == 0 && memory.created_count != 0)
      atomic_add<Order::relaxed>(&args.table.state->occupied, memory.created_count);
    block.sync();
  });
}

template <class Key, class Value, int W>
DG_KERNEL region_claim(RegionClaimArgs args) {
  using Table = OpenRows<Key, Value>;
  using Stop = typename Table::Stop;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const auto wanted = [&](u64 row) { return !args.marking || args.fresh[row]; };
  const auto claim = [&](u64 row, const Stop& stop) {
    if (stop.end != Table::End::key) return;
    const bool aside = stop.slot >= Table::side(1);
    const u64 sides = args.table.buckets * Table::Slots::per_bucket;
    const u64 slot = aside ? sides + ~stop.slot : stop.slot;
    u32* word = args.created + slot / 32;
    const u32 bit = 1u << slot % 32;
    if (args.marking) {
      atomic_or<Order::relaxed>(word, bit);
      return;
    }
    if constexpr (Table::Slots::has_value) {
      if ((aside ? stop.value : table.value_in(stop.slot)) != value_in_row<Table>(args.values, row))
        return;
    }
    if (atomic_load<Order::relaxed>(word) & bit &&
        atomic_fetch_and<Order::relaxed>(word, ~bit) & bit)
      args.fresh[row] = 1;
  };
  if constexpr (kInTurns<W>) {
    const OpenWalks<Key, Value> walks{table};
    for_each_in_turns(
        args.n, Totals<0>{},
        [&](u64 row) { return wanted(row) ? walks.begin(keys[row]) : decltype(walks.begin({})){}; },
        [&](u64 row, auto& walk, Tally<0>&) {
          if (!wanted(row)) return false;
          const Stop stop = walks.find(keys[row], walk);
          if (stop.end == Table::End::later) return true;
          claim(row, stop);
          return false;
        });
  } else {
    for_each_share<W>(args.n, Totals<0>{}, [&](auto tile, auto& rows, Tally<0>&) {
      table.template find_rows<Table::Goal::place>(
          tile, rows,
          [&](u64 row, Key& key) {
            key = keys[row];
            return wanted(row);
          },
          claim);
    });
  }
}

struct OpenSettleArgs {
  OpenStorage table;  // cleared
  const void* keys;   // different ones, by ascending hash
  const void* values;
  u64* later;  // rows whose first buckets have no slot for them, from each segment's first row on
  u64* late;   // how many, of each segment
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, keys, values, later, late, rows, segment_rows, n)
};

/// A key's rank among the keys of its first bucket is its slot there. Segments need not agree on more
/// than the rows, so that no slot is written twice; the keys that find their bucket full are told of.
template <class Key, class Value, int W>
DG_KERNEL open_settle(OpenSettleArgs args) {
  using Table = OpenTable<Key, Value>;
  constexpr u64 room = Table::Slots::per_bucket;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Value* values = static_cast<const Value*>(args.values);
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows, last = end_of_rows(args, segment);
    u64 bucket_before = first > 0 ? table.first_bucket(keys[first - 1]) : ~0ull;
    // Rows just before that have this bucket, as far as ranks below `room` tell.
    u64 held = 0;
    for (u32 others = first == 0; others == 0 && held < room;) {
      const u64 back = held + tile.lane() + 1;
      others = tile.ballot(back > first || table.first_bucket(keys[first - back]) != bucket_before);
      held += others ? lowest_one(others) : tile.size;
    }
    u64 late = first;
    for (u64 start = first; start < last; start += tile.size) {
      const u64 row = start + tile.lane();
      const bool inside = row < last;
      const Key key = inside ? keys[row] : Key{0};
      const u64 bucket = inside ? table.first_bucket(key) : ~0ull;
      const u64 left = tile.shuffle(bucket, (tile.lane() - 1) & (tile.size - 1));
      const u32 heads = tile.ballot(bucket != (tile.lane() == 0 ? bucket_before : left));
      const u32 behind = heads & (ones_below(tile.lane()) | 1u << tile.lane());
      const u64 rank = behind ? tile.lane() - highest_one(behind) : held + tile.lane();
      const bool fits = rank < room && !Table::reserved(key);
      if (inside && fits) table.fill(bucket * room + rank, key, values[row]);
      const u32 others = tile.ballot(inside && !fits);
      if (inside && !fits) args.later[late + count_ones(others & ones_below(tile.lane()))] = row;
      late += count_ones(others);
      held = heads ? tile.size - highest_one(heads) : held + tile.size;
      bucket_before = tile.shuffle(bucket, tile.size - 1);
    }
    if (tile.lane() == 0) args.late[segment] = late - first;
  });
}

/// Stores the keys that `open_settle` told of.
template <class Key, class Value, int W>
DG_KERNEL open_settle_late(OpenSettleArgs args) {
  const OpenTable<Key, Value> table{args.table};
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64* const later = args.later + segment * args.segment_rows;
    for (u64 i = 0; i < args.late[segment]; ++i)
      table.insert(tile, static_cast<const Key*>(args.keys)[later[i]],
                   static_cast<const Value*>(args.values)[later[i]], table.unlimited);
  });
}

}  // namespace dg

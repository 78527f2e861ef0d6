/// Reductions by group over a whole batch.
#pragma once

#include "batch/block_aggregate.cuh"
#include "batch/block_counts.cuh"
#include "batch/reduce.cuh"
#include "core/fields.cuh"
#include "grid/interleaved.cuh"
#include "table/groups.cuh"

namespace dg {

struct ReduceArgs {
  ReduceBatch batch;
  const i64* edges;  // or null; where each segment begins, and the last one ends
  u64 rows;
  u64 segment_rows;  // of each segment, or of an average one where there are edges
  u64 groups;
  u64 copies;  // 1, or one for each segment
  u64 n;       // segments

  DG_FIELDS(batch, edges, rows, segment_rows, groups, copies, n)
};

/// Keys that are placed and rows that are added up in one pass.
struct GroupBatch {
  GroupStorage table;
  const ReduceColumn* columns;  // their totals are words of the records, from the third on
  u64 column_count;             // at least 1
  const void* keys;
  const i64* rows;  // or null; the rows' numbers, which rise for each key
  u64* refused;     // set to 1 when a key found no place; no further rows are tried then

  DG_FIELDS(table, columns, column_count, keys, rows, refused)
};

struct GroupAddArgs {
  GroupBatch batch;
  u64 first_row;  // of this launch
  u64 rows;       // behind the last one
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(batch, first_row, rows, segment_rows, n)
};

struct GroupAddByBlockArgs {
  GroupBatch batch;
  u64 rows;
  u64 segment_rows;
  u64 slots;   // of a block's own totals, a power of two
  u64 copies;  // of each of them, a power of two
  u64 n;       // segments

  DG_FIELDS(batch, rows, segment_rows, slots, copies, n)
};

struct GroupGatherArgs {
  GroupStorage table;
  const void* keys;
  const i64* rows;  // one of each group
  void* keys_to;
  u64* totals;  // of `columns` columns, `n` of each
  u64 columns;
  u64 n;  // groups

  DG_FIELDS(table, keys, rows, keys_to, totals, columns, n)
};

struct CountByBlockArgs {
  const void* keys;
  const void* counts;  // or null: every row counts `term`
  void* keys_to;       // of the list, with room for all rows
  void* counts_to;
  u64* listed;  // pairs in it
  u64 term;
  u64 quarters;  // of 16 bytes, of the keys whose counts a block has; 0 for as many as fit
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(keys, counts, keys_to, counts_to, listed, term, quarters, rows, segment_rows, n)
};

template <int W>
DG_KERNEL group_reduce(ReduceArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    u64 first = segment * args.segment_rows;
    u64 last = first + args.segment_rows < args.rows ? first + args.segment_rows : args.rows;
    if (args.edges) {
      first = static_cast<u64>(args.edges[segment]);
      last = static_cast<u64>(args.edges[segment + 1]);
    }
    const u64 copy = args.copies == 1 ? 0 : segment;
    reduce_segment(tile, args.batch, first, last, copy * args.groups);
  });
}

/// The totals of a key that was placed, or null where it found no place.
DG_FN u64* totals_or_refuse(const GroupBatch& batch, u64 slot) {
  if (slot != GroupTable::kNone) return GroupTable{batch.table}.record(slot) + 2;
  atomic_store<Order::relaxed>(batch.refused, u64{1});
  return nullptr;
}

/// The totals of a key with a first row of at most `row`, or null where it found no place.
DG_FN u64* placed_totals(const GroupBatch& batch, u64 key, u64 row) {
  return totals_or_refuse(batch, GroupTable{batch.table}.place(key, row).slot);
}

template <class Key, int W>
DG_KERNEL group_add(GroupAddArgs args) {
  const GroupBatch& batch = args.batch;
  const Key* keys = static_cast<const Key*>(batch.keys);
  const auto row_at = [&](u64 place) {
    return batch.rows ? static_cast<u64>(batch.rows[place]) : place;
  };
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    if (tile.any(atomic_load_stale(batch.refused) != 0)) return;
    const u64 first = args.first_row + segment * args.segment_rows;
    const u64 last = first + args.segment_rows < args.rows ? first + args.segment_rows : args.rows;
    if constexpr (kInTurns<W>) {
      const GroupTable table{batch.table};
      take_turns(
          first, last, [&](u64 place) { return table.begin(keys[place]); },
          [&](u64 place, auto& walk) {
            const u64 row = row_at(place);
            GroupTable::Placed placed;
            if (table.place_step(keys[place], row, walk, placed)) return true;
            u64* const totals = totals_or_refuse(batch, placed.slot);
            for (u64 i = 0; totals && i < batch.column_count; ++i) {
              const ReduceColumn& column = batch.columns[i];
              add_to_total(totals + i, column.fold, term_of(column, place, row), false);
            }
            return false;
          });
    } else {
      for_each_step(tile, first, last, [&](u64 place, bool inside) {
        add_rows(tile, batch.columns, batch.column_count, inside ? keys[place] : Key{0}, place,
                 inside ? row_at(place) : place, inside,
                 [&](Key key, u64 row) { return placed_totals(batch, key, row); });
      });
    }
  });
}

/// The same with totals of each block's own, for few groups.
template <class Key, u32 Threads>
DG_BLOCK_KERNEL(Threads)
group_add_by_block(Sharing<GroupAddByBlockArgs, Threads, GroupFront> args) {
  const GroupBatch& batch = args.batch;
  const Key* keys = static_cast<const Key*>(batch.keys);
  const FrontShape shape{static_cast<u32>(args.slots), static_cast<u32>(args.copies)};
  for_each_block(args, [&](auto block, auto& front, u64 segment) {
    const u64 last = end_of_rows(args, segment);
    const auto tile = block.tile();
    const auto place = [&](Key key, u64 row) { return placed_totals(batch, key, row); };
    front.clear(block, shape, batch.columns, batch.column_count);
    block.sync();
    for (u64 start = segment * args.segment_rows + block.tile_index() * tile.size; start < last;
         start += block.threads) {
      if (tile.any(atomic_load_stale(batch.refused) != 0)) break;
      const u64 row = start + tile.lane();
      const bool inside = row < last;
      const Key key = inside ? keys[row] : Key{0};
      const bool placed =
          inside && front.add(shape, key, row, tile.lane(), batch.columns, batch.column_count);
      if (tile.any(placed != inside))
        add_rows(tile, batch.columns, batch.column_count, key, row, row, placed != inside, place);
    }
    block.sync();
    for (u32 slot = block.thread(); slot < shape.slots; slot += block.threads) {
      const u64 key = front.words[slot];
      if (key == GroupTable::kNone) continue;
      u64* const totals = placed_totals(batch, key, front.words[shape.slots + slot]);
      for (u64 i = 0; totals && i < batch.column_count; ++i) {
        const Fold fold = batch.columns[i].fold;
        add_to_total(totals + i, fold, front.total(shape, i, slot, fold), false);
      }
    }
    block.sync();
  });
}

/// Rows that a lane reads before it counts any.
inline constexpr u32 kCountRows = 4;

/// Makes of a batch a list of pairs with the same counts for each key.
template <class Key, class Count, u32 Threads>
DG_BLOCK_KERNEL(Threads)
count_by_block(
    Sharing<CountByBlockArgs, Threads, BlockCountsOf<Key, Count>::template Memory> args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  const Count* counts = static_cast<const Count*>(args.counts);
  const PairList<Key, Count> list{static_cast<Key*>(args.keys_to),
                                  static_cast<Count*>(args.counts_to), args.listed};
  for_each_block(args, [&](auto block, auto& front, u64 segment) {
    const u32 most = front.most_quarters;
    const u32 quarters = args.quarters ? static_cast<u32>(args.quarters) : most;
    const u64 last = end_of_rows(args, segment);
    const auto tile = block.tile();
    front.clear(block, quarters);
    block.sync();
    for (u64 start = segment * args.segment_rows; start < last;
         start += kCountRows * block.threads) {
      Key key[kCountRows];
      Count count[kCountRows];
      bool left[kCountRows];
      DG_UNROLL
      for (u32 i = 0; i < kCountRows; ++i) {
        const u64 row = start + i * block.threads + block.thread();
        left[i] = row < last;
        key[i] = left[i] ? keys[row] : Key{0};
        count[i] = left[i] && counts ? counts[row] : static_cast<Count>(args.term);
      }
      DG_UNROLL
      for (u32 i = 0; i < kCountRows; ++i) {
        // Lanes that all have one key would queue up for its count.
        const Key first_key = tile.shuffle(key[i], 0);
        if (tile.any(!left[i] || key[i] != first_key) || counts) {
          if (left[i]) left[i] = !front.add(quarters, key[i], count[i]);
        } else {
          bool placed = false;
          if (tile.lane() == 0) placed = front.add(quarters, key[i], count[i] * tile.size);
          left[i] = !tile.any(placed);
        }
      }
      list.append(tile, left, key, count);
    }
    block.sync();
    const u32 slots = quarters * front.per_quarter + 1;
    for (u32 first = 0; first < slots; first += block.threads) {
      const u32 slot = first + block.thread();
      Key key[1] = {0};
      const bool held[1] = {slot < slots && front.holds(quarters, slot, key[0])};
      const Count count[1] = {held[0] ? front.counts[slot] : Count{0}};
      list.append(tile, held, key, count);
    }
    block.sync();
  });
}

template <class Key, int W>
DG_KERNEL group_gather(GroupGatherArgs args) {
  const GroupTable table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const auto gather = [&](u64 group, Key key, u64 slot) {
    static_cast<Key*>(args.keys_to)[group] = key;
    for (u64 i = 0; i < args.columns; ++i)
      args.totals[i * args.n + group] = table.record(slot)[2 + i];
  };
  if constexpr (kInTurns<W>) {
    for_each_in_turns(
        args.n, Totals<0>{}, [&](u64 group) { return table.begin(keys[args.rows[group]]); },
        [&](u64 group, auto& walk, Tally<0>&) {
          const Key key = keys[args.rows[group]];
          GroupTable::Found found;
          if (table.find_step(key, walk, found)) return true;
          gather(group, key, found.slot);
          return false;
        });
  } else {
    for_each_lane<W>(args.n, [&](auto tile, u64 group, bool asked) {
      const Key key = asked ? keys[args.rows[group]] : Key{0};
      const u64 slot = asked ? table.find(key).slot : 0;
      tile.sync();
      if (asked) gather(group, key, slot);
    });
  }
}

}  // namespace dg

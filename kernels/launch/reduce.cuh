/// Reductions by group over a whole batch. Structs are mirrored in dgpuhash/backend/args.py.
#pragma once

#include "batch/reduce.cuh"
#include "launch/for_each.cuh"
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
};

struct GroupAddArgs {
  GroupStorage table;
  const ReduceColumn* columns;  // their totals are words of the records, from the third on
  u64 column_count;
  const void* keys;
  u64* refused;   // set to 1 when a key found no place; no further rows are tried then
  u64 n;          // rows of this launch
  u64 first_row;  // the first of them
};

struct GroupGatherArgs {
  GroupStorage table;
  const void* keys;
  const i64* rows;  // one of each group
  u64* totals;      // of `columns` columns, `n` of each
  u64 columns;
  u64 n;  // groups
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

/// Keys and totals in one pass over the rows.
template <class Key, int W>
DG_KERNEL group_add(GroupAddArgs args) {
  const GroupTable table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n,
      [&](auto tile, u64 index, bool asked) {
        const u64 row = args.first_row + index;
        if (tile.any(atomic_load_stale(args.refused) != 0)) return;
        const u64 key = asked ? keys[row] : 0;
        u32 peers = tile.match(static_cast<u32>(key));
        if constexpr (sizeof(Key) == 8) peers &= tile.match(static_cast<u32>(key >> 32));
        peers &= tile.ballot(asked);
        const u32 below = peers & ones_below(tile.lane());
        const u32 above = asked ? peers & ~below & ~(1u << tile.lane()) : 0;
        u64 slot = GroupTable::kNone;
        // The lowest lane has the first of its peers' rows.
        if (asked && below == 0) {
          slot = table.place(key, row).slot;
          if (slot == GroupTable::kNone) atomic_store<Order::relaxed>(args.refused, u64{1});
        }
        for (u64 i = 0; i < args.column_count; ++i) {
          const ReduceColumn column = args.columns[i];
          u64 word = asked ? term_of(column, row) : neutral(column.fold);
          word = combined(tile, column.fold, word, above, count_ones(below));
          if (slot != GroupTable::kNone)
            add_to_total(table.record(slot) + 2 + i, column.fold, word, false);
        }
      },
      [&](u64 index) { table.prefetch_first(keys[args.first_row + index]); });
}

template <class Key>
DG_KERNEL group_gather(GroupGatherArgs args) {
  const GroupTable table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<1>(args.n, [&](auto, u64 group) {
    const u64* const record = table.record(table.find(keys[args.rows[group]]).slot);
    for (u64 i = 0; i < args.columns; ++i) args.totals[i * args.n + group] = record[2 + i];
  });
}

}  // namespace dg

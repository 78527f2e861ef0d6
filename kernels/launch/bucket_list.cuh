/// The value lists of multi-value tables, by their handles. Batches come grouped by key: a run is the
/// values of one key in order. Structs are mirrored in dgpuhash/backend/args.py.
#pragma once

#include "batch/rows.cuh"
#include "core/atomic.cuh"
#include "launch/for_each.cuh"
#include "table/bucket_list.cuh"

namespace dg {

struct ListStorage {
  Growth growth;
  void* pool;
  ListRecord* records;
};

struct ListSettleArgs {
  ListStorage table;
  const i64* starts;  // of the runs, and the last one's end; null: each run is one value
  u64* handles;
  u64* recorded;  // added to: records taken from the first on
  u64 n;          // runs
};

struct ListCountArgs {
  ListStorage table;
  const u64* handles;
  i64* counts;  // values of each handle
  u64 n;
};

struct ListSumArgs {
  ListStorage table;
  const u64* handles;
  i64* values;  // of each segment: its handles' values together
  i64* pieces;  // and their pieces; or null
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

struct ListOffsetArgs {
  ListStorage table;
  const u64* handles;
  const i64* values;  // where each segment's values begin
  const i64* pieces;  // and its pieces; or null
  i64* offsets;       // where each handle's values begin
  i64* places;        // and its pieces; or null
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

struct ListLocateArgs {
  ListStorage table;
  ListPieces to;
  const u64* handles;
  const i64* offsets;  // where each handle's values go
  const i64* places;   // where each handle's pieces go
  u64 n;
};

struct ListPlanArgs {
  ListStorage table;
  const u64* handles;
  const i64* run_offsets;  // n + 1
  i64* slots;              // what appending each run takes
  i64* records;
  i64* pieces;
  u64 n;
};

struct ListAppendArgs {
  ListStorage table;
  ListPieces to;
  u64* handles;            // of the runs' keys: before the append, and then after it
  const i64* run_offsets;  // n + 1
  const i64* slots;        // where each run's new slots, records and pieces begin
  const i64* records;
  const i64* places;
  u64 n;
};

struct ListMoveArgs {
  ListStorage table;
  const i64* offsets;  // where each piece begins in `values`; n_pieces + 1
  const u64* handles;  // whose runs are the pieces
  void* values;        // to where, or from where, they are copied
  u64 pieces;
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments
};

/// Handles of neighbouring runs that begin with the pool.
DG_KERNEL list_settle(ListSettleArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 run) {
    const u64 start = args.starts ? static_cast<u64>(args.starts[run]) : run;
    const u64 count = args.starts ? static_cast<u64>(args.starts[run + 1]) - start : 1;
    if (count <= ListHandle::longest_run) {
      args.handles[run] = ListHandle::run(start, count).bits;
      return;
    }
    const u64 number = atomic_add<Order::relaxed>(args.recorded, 1);
    args.table.records[number] = {start, count, 0, 0};
    args.handles[run] = ListHandle::record(number).bits;
  });
}

DG_KERNEL list_count(ListCountArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const ListRecord content = ListHandle{args.handles[row]}.open(args.table.records);
    args.counts[row] = static_cast<i64>(content.count + content.listed);
  });
}

/// Calls `work(values_of, pieces_of)` with what sizes a row by either.
template <class Args, class Work>
DG_FN void with_sizes(const Args& args, const Work& work) {
  work(
      [&](u64 row) {
        const ListRecord content = ListHandle{args.handles[row]}.open(args.table.records);
        return content.count + content.listed;
      },
      [&](u64 row) {
        return pieces_of(ListHandle{args.handles[row]}.open(args.table.records), args.table.growth);
      });
}

template <int W>
DG_KERNEL list_sum(ListSumArgs args) {
  with_sizes(args, [&](const auto& values, const auto& pieces) {
    for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
      const u64 first = segment * args.segment_rows, last = end_of_rows(args, segment);
      const bool tells = tile.lane() == tile.size - 1;
      const u64 sum = sum_sizes(tile, first, last, values);
      if (tells) args.values[segment] = static_cast<i64>(sum);
      if (!args.pieces) return;
      const u64 piece_sum = sum_sizes(tile, first, last, pieces);
      if (tells) args.pieces[segment] = static_cast<i64>(piece_sum);
    });
  });
}

template <int W>
DG_KERNEL list_offsets(ListOffsetArgs args) {
  with_sizes(args, [&](const auto& values, const auto& pieces) {
    for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
      const u64 first = segment * args.segment_rows, last = end_of_rows(args, segment);
      for_each_offset(tile, first, last, static_cast<u64>(args.values[segment]), values,
                      [&](u64 row, u64 offset) { args.offsets[row] = static_cast<i64>(offset); });
      if (!args.pieces) return;
      for_each_offset(tile, first, last, static_cast<u64>(args.pieces[segment]), pieces,
                      [&](u64 row, u64 place) { args.places[row] = static_cast<i64>(place); });
    });
  });
}

template <class Value>
DG_KERNEL list_locate(ListLocateArgs args) {
  const BucketList<Value> lists{static_cast<Value*>(args.table.pool), args.table.growth};
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const ListRecord content = ListHandle{args.handles[row]}.open(args.table.records);
    lists.put_all(content, static_cast<u64>(args.offsets[row]), args.to,
                  static_cast<u64>(args.places[row]));
  });
}

DG_KERNEL list_plan(ListPlanArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 run) {
    const ListHandle handle{args.handles[run]};
    const u64 length = static_cast<u64>(args.run_offsets[run + 1] - args.run_offsets[run]);
    const auto need = need_of(handle, handle.open(args.table.records), length, args.table.growth);
    args.slots[run] = static_cast<i64>(need.slots);
    args.records[run] = static_cast<i64>(need.records);
    args.pieces[run] = static_cast<i64>(need.pieces);
  });
}

template <class Value>
DG_KERNEL list_append(ListAppendArgs args) {
  const BucketList<Value> lists{static_cast<Value*>(args.table.pool), args.table.growth};
  for_each_tile<1>(args.n, [&](auto, u64 run) {
    const ListHandle handle{args.handles[run]};
    ListRecord content = handle.open(args.table.records);
    const u64 begin = static_cast<u64>(args.run_offsets[run]);
    const u64 length = static_cast<u64>(args.run_offsets[run + 1]) - begin;
    const u64 slot = static_cast<u64>(args.slots[run]);
    const u64 piece = static_cast<u64>(args.places[run]);
    u64 number = static_cast<u64>(args.records[run]);
    if (handle.kind() == ListHandle::Kind::none) {
      args.to.put(piece, begin, slot);
      content = {slot, length, 0, 0};
      if (length <= ListHandle::longest_run) {
        args.handles[run] = ListHandle::run(slot, length).bits;
        return;
      }
    } else {
      if (handle.kind() == ListHandle::Kind::record) number = handle.number();
      lists.append(content, length, begin, slot, args.to, piece);
    }
    args.table.records[number] = content;
    args.handles[run] = ListHandle::record(number).bits;
  });
}

/// Calls `move(place, slot)` for all places of all pieces.
template <int W, class Move>
DG_FN void for_each_place(const ListMoveArgs& args, const Move& move) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    for_each_element(
        tile, args.offsets, args.pieces, segment * args.segment_rows, end_of_rows(args, segment),
        [&](u64 piece) { return ListHandle{args.handles[piece]}.start(args.table.records); }, move);
  });
}

template <class Value, int W>
DG_KERNEL list_gather(ListMoveArgs args) {
  const Value* pool = static_cast<const Value*>(args.table.pool);
  Value* values = static_cast<Value*>(args.values);
  for_each_place<W>(args, [&](u64 place, u64 slot) { values[place] = pool[slot]; });
}

template <class Value, int W>
DG_KERNEL list_scatter(ListMoveArgs args) {
  Value* pool = static_cast<Value*>(args.table.pool);
  const Value* values = static_cast<const Value*>(args.values);
  for_each_place<W>(args, [&](u64 place, u64 slot) { pool[slot] = values[place]; });
}

}  // namespace dg

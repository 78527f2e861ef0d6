/// The value lists of multi-value tables, by their handles. Batches come grouped by key: a run is the
/// values of one key in order.
#pragma once

#include "batch/rows.cuh"
#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "table/bucket_list.cuh"
#include "table/list_entries.cuh"

namespace dg {

struct ListStorage {
  Growth growth;
  ListEntries entries;
  void* pool;
  ListRecord* records;

  DG_FIELDS(growth, entries, pool, records)
};

struct ListWeighArgs {
  ListStorage table;
  const i64* starts;  // of runs in `values`, and the last one's end; null: each run is one value
  const void* values;
  i64* lists;      // of each segment: the runs that need a list
  i64* values_of;  // and their values
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, starts, values, lists, values_of, rows, segment_rows, n)
};

struct ListSettleArgs {
  ListStorage table;
  const i64* starts;
  const void* values;
  void* entries;
  const i64*
      lists;  // of each segment: its first list's number; null: runs are their lists' numbers
  const i64* places;  // and where that one's values begin in the pool
  i64* begins;        // of each list: where its values begin in the pool
  u64* stretches;     // and in `values`, as a handle
  u64* recorded;      // added to: records taken from the first on
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, starts, values, entries, lists, places, begins, stretches, recorded, rows,
            segment_rows, n)
};

struct ListOpenArgs {
  ListStorage table;
  const void* entries;
  const u8* found;  // or null: all were
  u64* handles;
  u64 n;

  DG_FIELDS(table, entries, found, handles, n)
};

struct ListCountArgs {
  ListStorage table;
  const u64* handles;
  i64* counts;  // values of each handle
  u64 n;

  DG_FIELDS(table, handles, counts, n)
};

struct ListSumArgs {
  ListStorage table;
  const u64* handles;
  i64* values;  // of each segment: its handles' values together
  i64* pieces;  // and their pieces; or null
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, handles, values, pieces, rows, segment_rows, n)
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

  DG_FIELDS(table, handles, values, pieces, offsets, places, rows, segment_rows, n)
};

struct ListLocateArgs {
  ListStorage table;
  ListPieces to;
  const u64* handles;
  const i64* offsets;  // where each handle's values go
  const i64* places;   // where each handle's pieces go
  u64 n;

  DG_FIELDS(table, to, handles, offsets, places, n)
};

struct ListPlanArgs {
  ListStorage table;
  const u64* handles;      // of the runs' keys
  const void* entries;     // they were opened from
  const i64* run_offsets;  // n + 1
  const void* values;
  i64* slots;  // what appending each run takes
  i64* records;
  i64* pieces;
  i64* numbers;
  u64 n;

  DG_FIELDS(table, handles, entries, run_offsets, values, slots, records, pieces, numbers, n)
};

struct ListAppendArgs {
  ListStorage table;
  ListPieces to;
  const u64* handles;      // of the runs' keys
  void* entries;           // before the append, and then after it
  const i64* run_offsets;  // n + 1
  const void* values;
  const i64* slots;  // where each run's new slots, records, pieces and handles begin
  const i64* records;
  const i64* places;
  const i64* numbers;
  u64 n;

  DG_FIELDS(table, to, handles, entries, run_offsets, values, slots, records, places, numbers, n)
};

struct ListMoveArgs {
  ListStorage table;
  const i64* offsets;   // where each piece begins in `values`; n_pieces + 1
  const u64* handles;   // whose runs are the pieces
  const void* entries;  // that handles of only values were opened from
  void* values;         // to where, or from where, they are copied
  u64 pieces;
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, offsets, handles, entries, values, pieces, rows, segment_rows, n)
};

/// A run that settles: where it begins in `values`, its length, and whether it needs a list.
struct SettledRun {
  u64 start;
  u64 length;
  bool listed;
};

template <class Args>
DG_FN SettledRun settled_run(const Args& args, u64 run) {
  SettledRun made{run, 1, true};
  if (args.starts) {
    made.start = static_cast<u64>(args.starts[run]);
    made.length = static_cast<u64>(args.starts[run + 1]) - made.start;
  }
  const ListEntries& entries = args.table.entries;
  if (made.length == 1)
    made.listed = !entries.is_value(entries.load_value(args.values, made.start));
  return made;
}

template <int W>
DG_KERNEL list_weigh(ListWeighArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    u64 lists = 0, values = 0;
    for_each_step(tile, segment * args.segment_rows, end_of_rows(args, segment),
                  [&](u64 row, bool inside) {
                    if (!inside) return;
                    const SettledRun run = settled_run(args, row);
                    lists += run.listed;
                    if (run.listed) values += run.length;
                  });
    lists = inclusive_sum(tile, lists);
    values = inclusive_sum(tile, values);
    if (tile.lane() != tile.size - 1) return;
    args.lists[segment] = static_cast<i64>(lists);
    args.values_of[segment] = static_cast<i64>(values);
  });
}

/// Entries of runs: only values, and lists that are numbered in order, or by run.
template <int W>
DG_KERNEL list_settle(ListSettleArgs args) {
  const ListEntries& entries = args.table.entries;
  const auto settle = [&](u64 row, const SettledRun& run, u64 number, u64 begin) {
    u64 entry = run.listed ? entries.entry_of(number) : entries.load_value(args.values, run.start);
    if (run.length > ListHandle::longest_run) {
      const u64 record = atomic_fetch_add<Order::relaxed>(args.recorded, 1);
      args.table.records[record] = {begin, run.length, 0, 0};
      entries.handles[record] = ListHandle::record(record).bits;
      entry = entries.entry_of(entries.settled + record);
    }
    entries.store(args.entries, row, entry);
    if (run.listed && args.begins) {
      args.begins[number] = static_cast<i64>(begin);
      args.stretches[number] = ListHandle::run(run.start, 0).bits;
    }
  };
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    u64 number = args.lists ? static_cast<u64>(args.lists[segment]) : 0;
    u64 place = args.lists ? static_cast<u64>(args.places[segment]) : 0;
    for_each_step(
        tile, segment * args.segment_rows, end_of_rows(args, segment), [&](u64 row, bool inside) {
          const SettledRun run = inside ? settled_run(args, row) : SettledRun{0, 0, false};
          if (!args.lists) {
            if (inside) settle(row, run, row, run.start);
            return;
          }
          const u64 length = run.listed ? run.length : 0;
          const u64 numbers = inclusive_sum(tile, static_cast<u64>(run.listed));
          const u64 places = inclusive_sum(tile, length);
          if (inside) settle(row, run, number + numbers - run.listed, place + places - length);
          number += tile.shuffle(numbers, tile.size - 1);
          place += tile.shuffle(places, tile.size - 1);
        });
  });
}

DG_KERNEL list_open(ListOpenArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const bool found = !args.found || args.found[row];
    args.handles[row] =
        (found ? args.table.entries.open(args.entries, row) : ListHandle::none()).bits;
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
    const ListHandle handle{args.handles[row]};
    const u64 begin = static_cast<u64>(args.offsets[row]);
    const u64 piece = static_cast<u64>(args.places[row]);
    if (handle.kind() == ListHandle::Kind::value)
      args.to.put(piece, begin, handle);
    else
      lists.put_all(handle.open(args.table.records), begin, args.to, piece);
  });
}

DG_KERNEL list_plan(ListPlanArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 run) {
    const ListEntries& entries = args.table.entries;
    const ListHandle handle{args.handles[run]};
    const u64 begin = static_cast<u64>(args.run_offsets[run]);
    const u64 length = static_cast<u64>(args.run_offsets[run + 1]) - begin;
    const auto need =
        need_of(handle, handle.open(args.table.records), length,
                entries.is_value(entries.load_value(args.values, begin)),
                entries.is_settled(entries.load(args.entries, run)), args.table.growth);
    args.slots[run] = static_cast<i64>(need.slots);
    args.records[run] = static_cast<i64>(need.records);
    args.pieces[run] = static_cast<i64>(need.pieces);
    args.numbers[run] = static_cast<i64>(need.handles);
  });
}

template <class Value>
DG_KERNEL list_append(ListAppendArgs args) {
  using Kind = ListHandle::Kind;
  const ListEntries& entries = args.table.entries;
  const BucketList<Value> lists{static_cast<Value*>(args.table.pool), args.table.growth};
  for_each_tile<1>(args.n, [&](auto, u64 run) {
    ListHandle handle{args.handles[run]};
    const bool numbered = handle.kind() == Kind::run || handle.kind() == Kind::record;
    const u64 entry = entries.load(args.entries, run);
    ListRecord content = handle.open(args.table.records);
    const u64 begin = static_cast<u64>(args.run_offsets[run]);
    const u64 length = static_cast<u64>(args.run_offsets[run + 1]) - begin;
    const u64 slot = static_cast<u64>(args.slots[run]);
    const u64 piece = static_cast<u64>(args.places[run]);
    u64 record = static_cast<u64>(args.records[run]);
    if (numbered) {
      if (handle.kind() == Kind::record) record = handle.number();
      lists.append(content, length, begin, slot, args.to, piece);
    } else {
      const u64 value = entries.load_value(args.values, begin);
      if (handle.kind() == Kind::none && length == 1 && entries.is_value(value)) {
        entries.store(args.entries, run, value);
        args.to.put(piece, begin, ListHandle::value(begin));
        return;
      }
      if (content.count > 0) lists.pool[slot] = static_cast<Value>(entry);
      args.to.put(piece, begin, ListHandle::run(slot + content.count, 0));
      content = {slot, length + content.count, 0, 0};
    }
    if (content.listed > 0 || content.count > ListHandle::longest_run) {
      args.table.records[record] = content;
      handle = ListHandle::record(record);
    } else {
      handle = ListHandle::run(content.start, content.count);
    }
    const u64 number = numbered && !entries.is_settled(entry)
                           ? entries.number_of(entry) - entries.settled
                           : static_cast<u64>(args.numbers[run]);
    entries.handles[number] = handle.bits;
    entries.store(args.entries, run, entries.entry_of(entries.settled + number));
  });
}

/// Calls `move(place, slot)` for all places of all pieces.
template <int W, class Move>
DG_FN void for_each_place(const ListMoveArgs& args, const Move& move) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    for_each_element(
        tile, args.offsets, args.pieces, segment * args.segment_rows, end_of_rows(args, segment),
        [&](u64 piece) { return ListHandle{args.handles[piece]}.source(); }, move);
  });
}

template <class Value, int W>
DG_KERNEL list_gather(ListMoveArgs args) {
  const Value* pool = static_cast<const Value*>(args.table.pool);
  const Value* alone = static_cast<const Value*>(args.entries);
  Value* values = static_cast<Value*>(args.values);
  for_each_place<W>(args, [&](u64 place, u64 slot) {
    values[place] = slot >= ListHandle::outside ? alone[slot - ListHandle::outside] : pool[slot];
  });
}

template <class Value, int W>
DG_KERNEL list_scatter(ListMoveArgs args) {
  Value* pool = static_cast<Value*>(args.table.pool);
  const Value* values = static_cast<const Value*>(args.values);
  for_each_place<W>(args, [&](u64 place, u64 slot) {
    if (slot < ListHandle::outside) pool[slot] = values[place];
  });
}

}  // namespace dg

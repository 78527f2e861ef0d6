/// Batches of growing lists (WarpCore §IV-C), where one kernel for all methods would cost more: appends
/// that lanes with the same key make together, reads of lists whose handles are known, and the move of
/// all handles to other slots.
#pragma once

#include "batch/rows.cuh"
#include "launch/verbs.cuh"
#include "table/methods/growing_lists.cuh"

namespace dg::verb {

struct GrowingAppendArgs {
  GrowingStorage table;
  const void* keys;
  const void* values;
  const u64* chosen;  // or null; the rows to append, all of the batch
  u64* pending_rows;  // the rows that found no place, in any order
  u64 rows;
  u64 segment_rows;  // less than 2^kSegmentBits
  u64 n;             // segments

  DG_FIELDS(table, keys, values, chosen, pending_rows, rows, segment_rows, n)
};

struct GrowingOpenArgs {
  GrowingStorage table;
  const void* keys;
  u64* handles;  // or null
  i64* counts;   // values of each; unused by `restore_lists`
  u64 n;

  DG_FIELDS(table, keys, handles, counts, n)
};

struct GrowingReadArgs {
  GrowingStorage table;
  const u64* handles;
  const i64* offsets;  // where each handle's values go
  void* values;
  u64 longest;  // longer lists are left to `read_parts`
  u64 n;

  DG_FIELDS(table, handles, offsets, values, longest, n)
};

struct GrowingReadPartsArgs {
  GrowingStorage table;
  const u64* handles;
  const i64* offsets;  // where each handle's values go
  const i64* parts;    // where each handle's parts begin, and the last one's end
  void* values;
  u64 part_values;
  u64 lists;
  u64 n;  // parts

  DG_FIELDS(table, handles, offsets, parts, values, part_values, lists, n)
};

/// Leaders reserve places for their groups of rows with one key; each lane gets its group's claim. Lanes
/// of a tile take every step together, so that nobody waits for a lane that waits for him: whoever has
/// blocked a handle publishes it in the same round.
template <class Tile, class Table>
DG_FN Claim claim_together(Tile tile, const Table& table, const typename Table::Place& to,
                           u32 leader, u32 wanted) {
  using Try = typename Table::Try;
  Claim claim{GrowingHandle::none(), 0, 0, 0};
  GrowingHandle seen = to.handle;
  bool open = to.slot != Table::no_slot && leader == tile.lane();
  for (u32 round = 0; tile.any(open) && round < Table::most_tries; ++round) {
    const Try got =
        open ? table.attempt(table.handle_at(to.slot), seen, wanted, claim) : Try::again;
    const bool blocking = got == Try::blocking;
    if (tile.any(blocking)) {
      const u64 fresh = table.at.pool.take(tile, blocking ? table.slots_for(claim, wanted) : 0);
      if (blocking) table.publish(table.handle_at(to.slot), wanted, fresh, claim);
    }
    const bool waits = open && got == Try::again;
    // A round in which somebody got on has taken time enough.
    if (!tile.any(open && !waits) && waits) table.wait(table.handle_at(to.slot), round, seen);
    open = waits;
  }
  if (open) claim.stored = 0;
  if (!tile.any(wanted > 1)) return claim;
  return {{tile.shuffle(claim.before.bits, leader)},
          tile.shuffle(claim.fresh, leader),
          tile.shuffle(claim.buckets, leader),
          tile.shuffle(claim.stored, leader)};
}

/// A segment has less than 2^this rows.
inline constexpr u32 kSegmentBits = 16;

/// Rows by which a CPU asks for lines ahead.
inline constexpr u32 kAheadRows = 24;

/// Appends the values of a batch, each lane with a row of its own. Lanes with the same key reserve their
/// places by one compare-and-swap, and so do all rows of one key that follow each other in a segment:
/// tries of many tiles at one handle succeed about once in a microsecond.
template <class Table, int W>
DG_KERNEL append_rows(GrowingAppendArgs args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Value* values = static_cast<const Value*>(args.values);
  const auto row_of = [&](u64 place) { return args.chosen ? args.chosen[place] : place; };
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 start = segment * args.segment_rows;
    const u32 last = static_cast<u32>(end_of_rows(args, segment) - start);
    // Values that were stored, and above them keys that came with them: in one register.
    u32 done = 0;
    for (u32 first = 0; first < last;) {
      const u32 begin = first;
      const bool inside = begin + tile.lane() < last;
      const u64 row = inside ? row_of(start + begin + tile.lane()) : 0;
      const Key key = keys[row];
      typename Table::Place to{Table::no_slot, GrowingHandle::none()};
      if (inside) to = table.template place_of<Access::shared, true>(key);
      const u32 group = tile.match(to.slot);
      const bool placed = to.slot != Table::no_slot;
      u32 wanted = placed ? count_ones(group) : 1;
      first += tile.size;
      // One key only: how far does its run go?
      if (tile.size > 1 && !tile.any(!placed || wanted < tile.size)) {
        while (first + tile.size <= last &&
               !tile.any(keys[row_of(start + first + tile.lane())] != key))
          first += tile.size;
        wanted = first - begin;
      }
      const Claim claim = claim_together(tile, table, to, lowest_one(group), wanted);
      if (claim.buckets == 0 && claim.stored > 0 && lowest_one(group) == tile.lane())
        done += 1u << kSegmentBits;
      u32 before = placed ? count_ones(group & ones_below(tile.lane())) : ~0u;
      DG_ROLL
      for (u32 next = begin; inside && next < first; next += tile.size) {
        if (next > begin) before = next - begin + tile.lane();
        const u64 mine = row_of(start + next + tile.lane());
        if (before < claim.stored) {
          table.store(claim, before, values[mine]);
          ++done;
        } else {
          refuse(args.table.state, args.pending_rows, mine);
        }
      }
    }
    // Tallies would take registers, too.
    const u64 all = inclusive_sum(tile, static_cast<u64>(done));
    if (tile.lane() != tile.size - 1) return;
    atomic_add<Order::relaxed>(&args.table.state->occupied, all & ((1u << kSegmentBits) - 1));
    atomic_add<Order::relaxed>(&args.table.state->links, all >> kSegmentBits);
  });
}

/// Erases keys with all their values.
template <class Table, int W>
DG_KERNEL erase_lists(EraseArgs<GrowingStorage> args) {
  const Table table{args.table};
  TableState* state = args.table.state;
  const auto* keys = static_cast<const typename Table::Key*>(args.keys);
  for_each_tile<W>(
      args.n, Totals<3>{{&state->occupied, &state->links, &state->erased}},
      [&](auto, u64 row, Tally<3>& tally) {
        const Removed removed = table.erase(keys[row]);
        tally.of[0] -= removed.erased;
        tally.of[1] -= removed.erased > 0;
        tally.of[2] += removed.left_marks;
        if (args.erased) args.erased[row] = removed.erased > 0;
      },
      [&](u64 row) { table.prefetch(keys[row]); });
}

/// The handle of each key and its number of values.
template <class Table, int W>
DG_KERNEL open_lists(GrowingOpenArgs args) {
  const Table table{args.table};
  const auto* keys = static_cast<const typename Table::Key*>(args.keys);
  for_each_tile<W>(
      args.n,
      [&](auto, u64 row) {
        const GrowingHandle handle = table.template place_of<Access::frozen>(keys[row]).handle;
        if (args.handles) args.handles[row] = handle.bits;
        args.counts[row] = static_cast<i64>(handle.count());
      },
      [&](u64 row) { table.prefetch(keys[row]); });
}

/// Gives keys back the handles that `open_lists` wrote before appends that are not to be.
template <class Table, int W>
DG_KERNEL restore_lists(GrowingOpenArgs args) {
  const Table table{args.table};
  const auto* keys = static_cast<const typename Table::Key*>(args.keys);
  for_each_tile<W>(args.n, [&](auto, u64 row) {
    const auto to = table.template place_of<Access::shared>(keys[row]);
    if (to.slot != Table::no_slot)
      atomic_store<Order::relaxed>(table.handle_at(to.slot), args.handles[row]);
  });
}

/// Writes the values of lists, each by one tile.
template <class Table, int W>
DG_KERNEL read_lists(GrowingReadArgs args) {
  using Value = typename Table::Value;
  const Table table{args.table};
  for_each_tile<W>(args.n, [&](auto tile, u64 row) {
    const GrowingHandle handle{args.handles[row]};
    if (handle.count() > args.longest) return;
    table.copy(tile, handle, static_cast<Value*>(args.values) + args.offsets[row]);
  });
}

/// The same of long lists, part by part, so that no tile works longer than others.
template <class Table, int W>
DG_KERNEL read_parts(GrowingReadPartsArgs args) {
  using Value = typename Table::Value;
  const Table table{args.table};
  for_each_tile<W>(args.n, [&](auto tile, u64 part) {
    const u64 row = row_at(args.parts, args.lists, part, 0);
    const u64 begin = (part - static_cast<u64>(args.parts[row])) * args.part_values;
    table.copy_values(tile, GrowingHandle{args.handles[row]}, begin, begin + args.part_values,
                      static_cast<Value*>(args.values) + args.offsets[row]);
  });
}

/// Puts every key with its handle into the slots of another table, whose values are in the same pool.
template <class Table, int W>
DG_KERNEL move_lists(RehashArgs<GrowingStorage> args) {
  using Key = typename Table::Key;
  const Table table{args.table}, target{args.target};
  const Totals<2> totals{{&args.target.state->occupied, &args.target.state->links}};
  for_each_tile<W>(
      args.n, totals,
      [&](auto tile, u64 place, Tally<2>& moved) {
        Key key{};
        typename Table::Value value{};
        if (!table.entry(place, key, value)) return;
        const auto to = target.template place<Access::shared, true>(tile, key);
        if (to.slot == Table::no_slot) return refuse(args.target.state, args.pending_rows, place);
        const GrowingHandle handle = table.handle_in(place);
        atomic_store<Order::relaxed>(target.handle_at(to.slot), handle.bits);
        moved.of[0] += static_cast<i64>(handle.count());
        moved.of[1] += 1;
      },
      NoPrefetch{});
}

}  // namespace dg::verb

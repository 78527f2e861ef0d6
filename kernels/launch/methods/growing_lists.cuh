/// Batches of growing lists (WarpCore §IV-C), where one kernel for all methods would cost more: appends
/// that lanes with the same key make together, reads of lists whose handles are known, and the move of
/// all handles to other slots.
#pragma once

#include "batch/rows.cuh"
#include "launch/verbs.cuh"
#include "table/growing_lists.cuh"

namespace dg {

struct GrowingAppendArgs {
  GrowingStorage table;
  const void* keys;
  const void* values;
  const u64* chosen;  // or null; the rows to append, all of the batch
  u64* pending_rows;  // the rows that found no place, in any order
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, keys, values, chosen, pending_rows, rows, segment_rows, n)
};

struct GrowingOpenArgs {
  GrowingStorage table;
  const void* keys;
  u64* handles;  // or null
  i64* counts;   // values of each key
  u64 n;

  DG_FIELDS(table, keys, handles, counts, n)
};

struct GrowingReadArgs {
  GrowingStorage table;
  const u64* handles;
  const i64* offsets;  // where each handle's values go
  void* values;
  u64 longest;  // longer lists are left to `growing_read_parts`
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

/// A lane's row, and what it shares with the lanes that bring the same key.
template <class Table>
struct Appending {
  typename Table::Place to;
  u32 leader;  // the lane that acts for all
  u64 before;  // rows of the same key that come first
  u64 wanted;  // rows of the key
};

/// Leaders reserve places for their groups; each lane gets its group's claim. Lanes of a warp take
/// every step together, so that nobody waits for a lane that waits for him: whoever has blocked a
/// handle publishes it in the same round.
template <class Tile, class Table>
DG_FN Claim claim_together(Tile tile, const Table& table, const Appending<Table>& mine) {
  using Try = typename Table::Try;
  Claim claim{0, 0, 0, 0, 0};
  GrowingHandle seen = mine.to.handle;
  bool open = mine.to.slot != Table::no_slot && mine.leader == tile.lane();
  for (u32 round = 0; tile.any(open) && round < Table::most_tries; ++round) {
    u64* const handle = table.handle_at(mine.to.slot);
    const Try got = open ? table.attempt(handle, seen, mine.wanted, claim) : Try::again;
    const bool blocking = got == Try::blocking;
    if (tile.any(blocking)) {
      const u64 fresh =
          table.at.pool.take(tile, blocking ? table.slots_for(claim, mine.wanted) : 0);
      if (blocking) table.publish(handle, seen, mine.wanted, fresh, claim);
    }
    const bool waits = open && got == Try::again;
    const bool blocked = waits && seen.state() == GrowingHandle::State::blocked;
    // A round in which somebody got on has taken time enough.
    if (!tile.any(open && !blocked)) back_off(round);
    open = waits;
  }
  if (open) claim.stored = 0;
  if (!tile.any(mine.wanted > 1)) return claim;
  return {tile.shuffle(claim.count, mine.leader), tile.shuffle(claim.tail, mine.leader),
          tile.shuffle(claim.fresh, mine.leader), tile.shuffle(claim.buckets, mine.leader),
          tile.shuffle(claim.stored, mine.leader)};
}

/// Appends the values of a batch, each lane with a row of its own. Lanes with the same key reserve their
/// places by one compare-and-swap, and so do all rows of one key that follow each other in a segment:
/// tries of many tiles at one handle succeed about once in a microsecond.
template <class Table, int W>
DG_KERNEL growing_append(GrowingAppendArgs args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Value* values = static_cast<const Value*>(args.values);
  const Totals<2> totals{{&args.table.state->occupied, &args.table.state->links}};
  const auto row_of = [&](u64 place) { return args.chosen ? args.chosen[place] : place; };
  const auto settle = [&](const Claim& claim, u64 before, u64 row) {
    const bool stored = before < claim.stored;
    if (stored)
      table.store(claim, before, values[row]);
    else
      verb::refuse(args.table.state, args.pending_rows, row);
    return stored;
  };
  for_each_segment<W>(
      args.n, args.segment_rows, totals, [&](auto tile, u64 segment, Tally<2>& tally) {
        const u64 last = end_of_rows(args, segment);
        u64 first = segment * args.segment_rows;
        while (first < last) {
          const u64 place = first + tile.lane();
          const bool inside = place < last;
          const u64 row = inside ? row_of(place) : 0;
          const Key key = inside ? keys[row] : Mark<Key>::empty;
          const bool asked = !is_reserved(key);
          Appending<Table> mine{{Table::no_slot, false, GrowingHandle::none()}, tile.lane(), 0, 1};
          if (asked) mine.to = table.template place<Access::shared, true>(Tile<1>{}, key);
          tally.of[1] += mine.to.created;
          const u32 group = tile.match(mine.to.slot);
          const bool placed = mine.to.slot != Table::no_slot;
          if (placed) {
            mine.leader = lowest_one(group);
            mine.before = count_ones(group & ones_below(tile.lane()));
            mine.wanted = count_ones(group);
          }
          const u64 here = first;
          first += tile.size;
          // One key only: how far does its run go?
          const Key common = tile.shuffle(key, 0);
          if (tile.size > 1 && !tile.any(!placed || mine.wanted < tile.size)) {
            while (first < last) {
              const u64 next = first + tile.lane();
              if (tile.any(next >= last || keys[next < last ? row_of(next) : row] != common)) break;
              first += tile.size;
            }
            mine.wanted = first - here;
          }
          const Claim claim = claim_together(tile, table, mine);
          if (inside) tally.of[0] += settle(claim, placed ? mine.before : ~0ull, row);
          for (u64 next = here + tile.size + tile.lane(); next < first; next += tile.size)
            tally.of[0] += settle(claim, next - here, row_of(next));
        }
      });
}

/// The handle of each key and its number of values; reserved keys have none here.
template <class Table>
DG_KERNEL growing_open(GrowingOpenArgs args) {
  using Key = typename Table::Key;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<1>(
      args.n,
      [&](auto tile, u64 row) {
        const Key key = keys[row];
        GrowingHandle handle = GrowingHandle::none();
        if (!is_reserved(key)) handle = table.template place<Access::frozen>(tile, key).handle;
        if (args.handles) args.handles[row] = handle.bits;
        args.counts[row] = static_cast<i64>(handle.count());
      },
      [&](u64 row) { table.prefetch(keys[row]); });
}

/// Writes the values of lists, each by one tile.
template <class Table, int W>
DG_KERNEL growing_read(GrowingReadArgs args) {
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
DG_KERNEL growing_read_parts(GrowingReadPartsArgs args) {
  using Value = typename Table::Value;
  const Table table{args.table};
  for_each_tile<W>(args.n, [&](auto tile, u64 part) {
    const u64 row = row_at(args.parts, args.lists, part, 0);
    const u64 begin = (part - static_cast<u64>(args.parts[row])) * args.part_values;
    table.copy_part(tile, GrowingHandle{args.handles[row]}, begin, begin + args.part_values,
                    static_cast<Value*>(args.values) + args.offsets[row]);
  });
}

/// Puts every key with its handle into the slots of another table, whose values are in the same pool.
template <class Table>
DG_KERNEL growing_rehash(verb::RehashArgs<GrowingStorage> args) {
  using Key = typename Table::Key;
  const Table table{args.table}, target{args.target};
  const Totals<2> totals{{&args.target.state->occupied, &args.target.state->links}};
  for_each_tile<1>(
      args.n, totals,
      [&](auto tile, u64 place, Tally<2>& moved) {
        Key key{};
        typename Table::Value value{};
        if (!table.entry(place, key, value)) return;
        const auto to = target.template place<Access::shared, true>(tile, key);
        if (to.slot == Table::no_slot)
          return verb::refuse(target.at.state, args.pending_rows, place);
        const GrowingHandle handle = table.handle_in(place);
        atomic_store<Order::relaxed>(target.handle_at(to.slot), handle.bits);
        moved.of[0] += static_cast<i64>(handle.count());
        moved.of[1] += 1;
      },
      NoPrefetch{});
}

}  // namespace dg

/// The verbs of every method but `auto`, whose own are in launch/open.cuh.
///
/// A method is a struct `Table<Key, Value, …>` with a member `Storage at`, and of it
///
///   Key, Value, has_value                    words; `Value` is NoValue for sets
///   Storage                                  passed by value, with `TableState* state`
///   insert(tile, key, value, change)         -> Outcome; changes the value of a stored key
///   find(tile, key)                          -> Found<Value>
///   erase(tile, key)                         -> Removed
///   probes(tile, key)                        -> u64: windows, slabs, … that a search reads
///   places(), entry(place, key, value)       what may hold a key, and whether it does
///   set_value(place, key, value)             optional: replaces the value of the key in a place, while
///                                            nobody else works at the table
///   prefetch(key)                            what a search reads first; for CPUs
///   rows_width, rows()                       optional: tiles of that width take rows side by side, by
///                                            insert(tile, share, change, ask, tell) and find(tile, share,
///                                            ask, answer), as in table/rows/cops_rows.cuh
///   insert_own(tile, asked, key, …),         optional, as find_own, erase_own: the same of keys that the lanes bring, a
///                                            key each
///
/// and of tables of several values a key, whose `insert` always adds one,
///
///   count(tile, key)                         -> u64: its values
///   gather(tile, key, to)                    writes them
///   erase(tile, key)                         -> Removed, of all of them
///
/// All lanes of a tile bring the same key and get the same answer. Each lane holds a row of its own, and
/// the tile serves its lanes one by one: one lane is one row a thread, a warp is SlabHash's way.
/// A table sees no reserved key: they are in `SideSlots`, or where there are several values, in
/// arrays that Python keeps, so that `append` leaves them among the rows refused.
#pragma once

#include "grid/result_staging.cuh"
#include "launch/methods/verb_args.cuh"
#include "table/table_state.cuh"

namespace dg {

namespace verb {

template <class Table>
DG_FN typename Table::Value value_in(const void* values, u64 row) {
  if constexpr (Table::has_value)
    return static_cast<const typename Table::Value*>(values)[row];
  else
    return {};
}

template <class Tile, class Value>
DG_FN Value shared_value(Tile tile, Value value, u32 source) {
  if constexpr (same<Value, NoValue>)
    return {};
  else
    return tile.shuffle(value, source);
}

/// The side slots of a table of one value a key.
template <class Table>
DG_FN auto side_slots(const Table& table) {
  using Stored = typename Chosen<Table::has_value, typename Table::Value, void>::Type;
  return SideSlots<typename Table::Key, Stored>{table.at.state};
}

/// Leaves a row among those that found no place.
DG_FN void refuse(TableState* state, u64* pending_rows, u64 row) {
  const u64 place = atomic_fetch_add<Order::relaxed>(&state->pending, 1);
  if (pending_rows) pending_rows[place] = row;
}

/// Whether a table takes the rows of a launch itself, and the width of the tiles that do: warps, or what
/// tests can watch.
template <class Table, int W>
constexpr bool takes_rows() {
#if DG_GPU || defined(DG_LOCKSTEP)
  if constexpr (requires { Table::rows_width; }) return Table::rows_width == W;
#endif
  return false;
}
inline constexpr u32 kShareWidth = DG_GPU ? 32 : 8;

/// Each lane's own key by the whole tile: by the table itself, or one after the other.
template <class Table, class Tile, class Key, class Value>
DG_FN Outcome insert_own(const Table& table, Tile tile, bool asked, Key mine, Value value,
                         Change change) {
  if constexpr (requires { table.insert_own(tile, asked, mine, value, change); }) {
    return table.insert_own(tile, asked, mine, value, change);
  } else {
    Outcome outcome = Outcome::refused;
    serve_lanes(tile, asked, [&](u32 source) {
      const Outcome got =
          table.insert(tile, tile.shuffle(mine, source), shared_value(tile, value, source), change);
      if (tile.lane() == source) outcome = got;
    });
    return outcome;
  }
}

template <class Table, class Tile, class Key>
DG_FN auto find_own(const Table& table, Tile tile, bool asked, Key mine) {
  using Value = typename Table::Value;
  if constexpr (requires { table.find_own(tile, asked, mine); }) {
    return table.find_own(tile, asked, mine);
  } else {
    Found<Value> found{false, Value{}};
    serve_lanes(tile, asked, [&](u32 source) {
      const Found<Value> got = table.find(tile, tile.shuffle(mine, source));
      if (tile.lane() == source) found = got;
    });
    return found;
  }
}

template <class Table, class Tile, class Key>
DG_FN Removed erase_own(const Table& table, Tile tile, bool asked, Key mine) {
  if constexpr (requires { table.erase_own(tile, asked, mine); }) {
    return table.erase_own(tile, asked, mine);
  } else {
    Removed removed{0, 0};
    serve_lanes(tile, asked, [&](u32 source) {
      const Removed got = table.erase(tile, tile.shuffle(mine, source));
      if (tile.lane() == source) removed = got;
    });
    return removed;
  }
}

template <class Table, int W>
DG_KERNEL insert(InsertArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Change change = change_of(args.action, args.kind);
  const Totals<1> totals{{&args.table.state->occupied}};
  const auto row_at = [&](u64 place) { return args.rows ? args.rows[place] : place; };
  const auto tell = [&](u64 row, Outcome outcome, Tally<1>& created) {
    if (args.fresh) args.fresh[row] = outcome == Outcome::created;
    created.of[0] += outcome == Outcome::created;
    if (outcome == Outcome::refused) refuse(args.table.state, args.pending_rows, row);
  };
  if constexpr (takes_rows<Table, W>()) {
    for_each_share<kShareWidth>(args.n, totals, [&](auto tile, auto& rows, Tally<1>& created) {
      table.rows().insert(
          tile, rows, change,
          [&](u64 place, Key& key, Value& value) {
            const u64 row = row_at(place);
            key = keys[row];
            value = value_in<Table>(args.values, row);
            if (!is_reserved(key)) return true;
            tell(row, side_slots(table).insert(key, value, change), created);
            return false;
          },
          [&](u64 place, Outcome outcome) { tell(row_at(place), outcome, created); });
    });
  } else {
    for_each_lane<W>(
        args.n, totals,
        [&](auto tile, u64 place, bool asked, Tally<1>& created) {
          const u64 row = asked ? row_at(place) : place;
          const Key mine = asked ? load_leaving(keys + row) : Key{};
          const auto value = asked ? value_in<Table>(args.values, row) : Value{};
          const bool beside = asked && is_reserved(mine);
          Outcome outcome = insert_own(table, tile, asked && !beside, mine, value, change);
          if (!asked) return;
          if (beside) outcome = side_slots(table).insert(mine, value, change);
          tell(row, outcome, created);
        },
        [&](u64 place) { table.prefetch(keys[row_at(place)]); });
  }
}

template <class Table, int W>
DG_KERNEL_OF((takes_rows<Table, W>() ? 5 : 4))
find(FindArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Answers<Value> answers{static_cast<Value*>(args.values), args.found};
  const auto value_of = [&](const Found<Value>& got) {
    if constexpr (Table::has_value)
      return got.found ? got.value : static_cast<Value>(args.default_value);
    else
      return Value{};
  };
  const auto beside = [&](Key key) {
    return Found<Value>{side_slots(table).holds(key), side_slots(table).value_of(key)};
  };
  if constexpr (takes_rows<Table, W>()) {
    for_each_answered<kShareWidth>(args.n, Totals<0>{}, answers,
                                   [&](auto tile, auto& rows, Tally<0>&) {
                                     const auto answer = [&](u64 row, const Found<Value>& got) {
                                       rows.answer(row, got.found, value_of(got));
                                     };
                                     table.rows().find(
                                         tile, rows,
                                         [&](u64 row, Key& key) {
                                           key = keys[row];
                                           if (!is_reserved(key)) return true;
                                           answer(row, beside(key));
                                           return false;
                                         },
                                         answer);
                                   });
  } else {
    for_each_lane<W>(
        args.n, Totals<0>{},
        [&](auto tile, u64 row, bool asked, Tally<0>&) {
          const Key mine = asked ? load_leaving(keys + row) : Key{};
          const bool aside = asked && is_reserved(mine);
          Found<Value> got = find_own(table, tile, asked && !aside, mine);
          if (!asked) return;
          if (aside) got = beside(mine);
          answers.store_past_caches(row, got.found, value_of(got));
        },
        [&](u64 row) { table.prefetch(keys[row]); });
  }
}

template <class Table, int W>
DG_KERNEL erase(EraseArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n, Totals<2>{{&args.table.state->occupied, &args.table.state->erased}},
      [&](auto tile, u64 row, bool asked, Tally<2>& tally) {
        const Key mine = asked ? keys[row] : Key{};
        const bool beside = asked && is_reserved(mine);
        Removed removed = erase_own(table, tile, asked && !beside, mine);
        if (!asked) return;
        if (beside) removed.erased = side_slots(table).erase(mine);
        tally.of[0] -= removed.erased;
        tally.of[1] += removed.left_marks;
        if (args.erased) args.erased[row] = removed.erased != 0;
      },
      [&](u64 row) { table.prefetch(keys[row]); });
}

/// Counts the keys in the places of each segment; the reserved keys are left to Python.
template <class Table, int W>
DG_KERNEL places(PlacesArgs<typename Table::Storage> args) {
  const Table table{args.table};
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    u32 count = 0;
    for_each_step(tile, segment * args.segment_rows, end_of_rows(args, segment),
                  [&](u64 place, bool inside) {
                    typename Table::Key key{};
                    typename Table::Value value{};
                    count += count_ones(tile.ballot(inside && table.entry(place, key, value)));
                  });
    if (tile.lane() == 0) args.counts[segment] = count;
  });
}

/// Calls `put(place, number, key, value)` for the keys in the places of each segment, which have the numbers
/// from its offset on.
template <class Table, int W, class Put>
DG_FN void for_each_entry(const PlacesArgs<typename Table::Storage>& args, const Put& put) {
  const Table table{args.table};
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    u64 next = args.offsets[segment];
    for_each_step(tile, segment * args.segment_rows, end_of_rows(args, segment),
                  [&](u64 place, bool inside) {
                    typename Table::Key key{};
                    typename Table::Value value{};
                    const bool live = inside && table.entry(place, key, value);
                    const u32 lanes = tile.ballot(live);
                    const u64 number = next + count_ones(lanes & ones_below(tile.lane()));
                    next += count_ones(lanes);
                    if (live) put(place, number, key, value);
                  });
  });
}

/// Writes the keys, and values, of each segment from its offset on.
template <class Table, int W>
DG_KERNEL items(PlacesArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  for_each_entry<Table, W>(args, [&](u64, u64 number, Key key, Value value) {
    static_cast<Key*>(args.keys)[number] = key;
    if constexpr (Table::has_value)
      if (args.values) static_cast<Value*>(args.values)[number] = value;
  });
}

/// Writes the keys of each segment from its offset on; the number of a key becomes its value, too
/// (Alcantara's thesis, §6.3: compacting).
template <class Table, int W>
DG_KERNEL number(PlacesArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  for_each_entry<Table, W>(args, [&](u64 place, u64 number, Key key, Value) {
    static_cast<Key*>(args.keys)[number] = key;
    table.set_value(place, key, static_cast<Value>(number));
  });
}

/// Inserts what a table holds into another, but for the reserved keys.
template <class Table, int W>
DG_KERNEL rehash(RehashArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  const Table table{args.table}, target{args.target};
  for_each_lane<W>(
      args.n, Totals<1>{{&args.target.state->occupied}},
      [&](auto tile, u64 place, bool asked, Tally<1>& moved) {
        Key mine{};
        typename Table::Value value{};
        const bool live = asked && table.entry(place, mine, value);
        const Outcome outcome = insert_own(target, tile, live, mine, value,
                                           Change{OnExisting::keep, ValueKind::unsigned_integer});
        if (!live) return;
        moved.of[0] += outcome == Outcome::created;
        if (outcome == Outcome::refused) refuse(args.target.state, args.pending_rows, place);
      },
      NoPrefetch{});
}

/// Adds up what searches for keys read; reserved keys read nothing.
template <class Table, int W>
DG_KERNEL probes(ProbesArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  const Table table{args.table};
  for_each_lane<W>(
      args.n, Totals<1>{{args.total}},
      [&](auto tile, u64 row, bool asked, Tally<1>& total) {
        const Key mine = asked ? static_cast<const Key*>(args.keys)[row] : Key{};
        serve_lanes(tile, asked && !is_reserved(mine), [&](u32 source) {
          const u64 read = table.probes(tile, tile.shuffle(mine, source));
          if (tile.lane() != source) return;
          total.of[0] += static_cast<i64>(read);
          if (args.counts) args.counts[row] = static_cast<u32>(read);
        });
      },
      NoPrefetch{});
}

/// As `insert`, of a table that adds a value for each row.
template <class Table, int W>
DG_KERNEL append(InsertArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n, Totals<1>{{&args.table.state->occupied}},
      [&](auto tile, u64 place, bool asked, Tally<1>& stored) {
        const u64 row = asked && args.rows ? args.rows[place] : place;
        const Key mine = asked ? keys[row] : Key{};
        const auto value = asked ? value_in<Table>(args.values, row) : typename Table::Value{};
        Outcome outcome = Outcome::refused;
        serve_lanes(tile, asked && !is_reserved(mine), [&](u32 source) {
          const Outcome got =
              table.insert(tile, tile.shuffle(mine, source), shared_value(tile, value, source),
                           Change{OnExisting::keep, ValueKind::unsigned_integer});
          if (tile.lane() == source) outcome = got;
        });
        if (!asked) return;
        stored.of[0] += outcome == Outcome::created;
        if (outcome == Outcome::refused) refuse(args.table.state, args.pending_rows, row);
      },
      [&](u64 place) { table.prefetch(keys[args.rows ? args.rows[place] : place]); });
}

/// How many values each key has.
template <class Table, int W>
DG_KERNEL count(ValueCountArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n, Totals<0>{},
      [&](auto tile, u64 row, bool asked, Tally<0>&) {
        const Key mine = asked ? keys[row] : Key{};
        const bool beside = asked && is_reserved(mine);
        u64 values = 0;
        serve_lanes(tile, asked && !beside, [&](u32 source) {
          const u64 got = table.count(tile, tile.shuffle(mine, source));
          if (tile.lane() == source) values = got;
        });
        if (beside) values = args.table.state->side_present[mine == Mark<Key>::empty ? 0 : 1];
        if (asked) args.counts[row] = values;
      },
      [&](u64 row) { table.prefetch(keys[row]); });
}

/// Writes the values of each key from its offset on.
template <class Table, int W>
DG_KERNEL gather(GatherArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_lane<W>(
      args.n, Totals<0>{},
      [&](auto tile, u64 row, bool asked, Tally<0>&) {
        const Key mine = asked ? keys[row] : Key{};
        const u64 offset = asked ? args.offsets[row] : 0;
        serve_lanes(tile, asked, [&](u32 source) {
          const Key key = tile.shuffle(mine, source);
          Value* to = static_cast<Value*>(args.values) + tile.shuffle(offset, source);
          if (!is_reserved(key)) return table.gather(tile, key, to);
          const bool first = key == Mark<Key>::empty;
          const Value* from =
              static_cast<const Value*>(first ? args.side_values[0] : args.side_values[1]);
          const u64* values = args.table.state->side_present;
          for (u64 at = tile.lane(); at < (first ? values[0] : values[1]); at += tile.size)
            to[at] = from[at];
        });
      },
      [&](u64 row) { table.prefetch(keys[row]); });
}

}  // namespace verb
}  // namespace dg

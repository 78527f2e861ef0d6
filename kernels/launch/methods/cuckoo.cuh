/// What cuckoo tables have beside the verbs: the launch that stores keys.
#pragma once

#include "launch/verbs.cuh"
#include "table/methods/cuckoo.cuh"

namespace dg::verb {

template <class Storage>
struct PlaceArgs {
  Storage table;
  Storage source;      // what its places hold is stored where `keys` is null
  const void* keys;    // not stored
  const void* values;  // unused by sets
  const u64* rows;     // or null: the rows to store, all of the batch
  u64 n;               // rows, or places

  DG_FIELDS(table, source, keys, values, rows, n)
};

/// Stores rows of a batch, or what another table holds but for the reserved keys. Where any is refused, the
/// table is lost, and the others need not go on.
template <class Table, int W>
DG_KERNEL place(PlaceArgs<typename Table::Storage> args) {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  const Table table{args.table};
  u64* const counts = args.table.counts;
  const auto row_at = [&](u64 place) { return args.rows ? args.rows[place] : place; };
  for_each_lane<W>(
      args.n, Totals<3>{{&args.table.state->occupied, counts, counts + 1}},
      [&](auto, u64 place, bool asked, Tally<3>& tally) {
        if (!asked || table.failed()) return;
        Key key{};
        Value value{};
        if (args.keys) {
          const u64 row = row_at(place);
          key = static_cast<const Key*>(args.keys)[row];
          value = value_in<Table>(args.values, row);
        } else if (!Table{args.source}.entry(place, key, value)) {
          return;
        }
        if (is_reserved(key)) {
          constexpr Change keep{OnExisting::keep, ValueKind::unsigned_integer};
          tally.of[0] += side_slots(table).insert(key, value, keep) == Outcome::created;
          return;
        }
        const Placed placed = table.place(key, value);
        tally.of[0] += placed.stored;
        tally.of[1] += placed.swaps;
        tally.of[2] += placed.stored;
        if (!placed.stored) refuse(args.table.state, nullptr, place);
      },
      [&](u64 place) {
        if (args.keys) table.prefetch(static_cast<const Key*>(args.keys)[row_at(place)]);
      });
}

/// Counts places whose key another place has, too.
template <class Table, int W>
DG_KERNEL doubles(ProbesArgs<typename Table::Storage> args) {
  const Table table{args.table};
  for_each_lane<W>(
      args.n, Totals<1>{{args.total}},
      [&](auto, u64 place, bool asked, Tally<1>& total) {
        typename Table::Key key{};
        typename Table::Value value{};
        if (asked && table.entry(place, key, value)) total.of[0] += !table.alone(place, key);
      },
      NoPrefetch{});
}

}  // namespace dg::verb

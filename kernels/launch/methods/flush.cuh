/// Flush: chains of nodes without the marks of erased keys, for tables that have
///
///   flush(tile, bucket)                      -> Flushed
#pragma once

#include "core/fields.cuh"
#include "grid/for_each.cuh"

namespace dg::verb {

template <class Storage>
struct FlushArgs {
  Storage table;
  u64* released;  // nodes in all
  u64 n;          // buckets

  DG_FIELDS(table, released, n)
};

/// Moves what each chain holds into as few nodes as it needs (SlabHash §IV-C4; the clean of DACHash §III-B).
template <class Table, int W>
DG_KERNEL flush(FlushArgs<typename Table::Storage> args) {
  const Table table{args.table};
  for_each_tile<W>(
      args.n, Totals<2>{{&args.table.state->erased, args.released}},
      [&](auto tile, u64 bucket, Tally<2>& tally) {
        const auto flushed = table.flush(tile, bucket);
        if (tile.lane() != 0) return;
        tally.of[0] -= flushed.marks;
        tally.of[1] += flushed.nodes;
      },
      NoPrefetch{});
}

}  // namespace dg::verb

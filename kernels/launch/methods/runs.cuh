/// The values of multimaps that are built once (Alcantara's thesis, §6.3): those of each key stand one after the
/// other, and a table of keys tells the run.
#pragma once

#include "batch/rows.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"

namespace dg {

struct RunGatherArgs {
  const i64* runs;     // of each row
  const i64* offsets;  // where the values of each row go, and where the last ones end
  const i64* starts;   // of each run in `values`
  const void* values;
  void* to;
  u64 query_rows;
  u64 rows;  // values to write
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(runs, offsets, starts, values, to, query_rows, rows, segment_rows, n)
};

/// Writes the values of all rows, shared out by value, so that a long run costs no more than many short ones.
template <class Value, int W>
DG_KERNEL run_gather(RunGatherArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    u64 row = 0;
    for_each_step(tile, segment * args.segment_rows, end_of_rows(args, segment),
                  [&](u64 place, bool inside) {
                    if (!inside) return;
                    row = row_at(args.offsets, args.query_rows, place, row);
                    const u64 rank = place - static_cast<u64>(args.offsets[row]);
                    const u64 start = static_cast<u64>(args.starts[args.runs[row]]);
                    static_cast<Value*>(args.to)[place] =
                        static_cast<const Value*>(args.values)[start + rank];
                  });
  });
}

}  // namespace dg

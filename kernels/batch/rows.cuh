/// Work shared out by element and not by row, so that a row of many elements costs no more than many
/// rows of few.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// The row that element `place` belongs to, which is not before row `from`; `offsets` are where each
/// row's elements begin, and the last one's end.
DG_FN u64 row_at(const i64* offsets, u64 rows, u64 place, u64 from) {
  const i64 wanted = static_cast<i64>(place);
  u64 step = 1;
  for (; from + step < rows && offsets[from + step] <= wanted; step *= 2) from += step;
  u64 beyond = from + step < rows ? from + step : rows;
  while (beyond - from > 1) {
    const u64 middle = from + (beyond - from) / 2;
    if (offsets[middle] <= wanted)
      from = middle;
    else
      beyond = middle;
  }
  return from;
}

/// Calls `visit(place, source)` for elements [first, last), where `source` counts on from
/// `source_of(row)`, where the elements of a row begin elsewhere.
template <class Tile, class SourceOf, class Visit>
DG_FN void for_each_element(Tile tile, const i64* offsets, u64 rows, u64 first, u64 last,
                            const SourceOf& source_of, const Visit& visit) {
  u64 row = 0, end = 0, shift = 0;
  for (u64 place = first + tile.lane(); place < last; place += Tile::size) {
    if (place >= end) {
      row = row_at(offsets, rows, place, row);
      end = static_cast<u64>(offsets[row + 1]);
      shift = source_of(row) - static_cast<u64>(offsets[row]);
    }
    visit(place, place + shift);
  }
}

}  // namespace dg

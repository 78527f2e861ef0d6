/// Work shared out by element and not by row, so that a row of many elements costs no more than many
/// rows of few.
#pragma once

#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

/// The sum of `size_of(row)` over rows [first, last), as the tile's last lane is told.
template <class Tile, class SizeOf>
DG_FN u64 sum_sizes(Tile tile, u64 first, u64 last, const SizeOf& size_of) {
  u64 sum = 0;
  for (u64 row = first + tile.lane(); row < last; row += Tile::size) sum += size_of(row);
  return inclusive_sum(tile, sum);
}

/// Calls `put(row, offset)` for rows [first, last) with `offset` and the sizes of the rows before.
template <class Tile, class SizeOf, class Put>
DG_FN void for_each_offset(Tile tile, u64 first, u64 last, u64 offset, const SizeOf& size_of,
                           const Put& put) {
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const u64 size = row < last ? size_of(row) : 0;
    const u64 sum = inclusive_sum(tile, size);
    if (row < last) put(row, offset + sum - size);
    offset += tile.shuffle(sum, Tile::size - 1);
  }
}

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

/// The same, of all rows, by the lanes of a tile.
template <class Tile>
DG_FN u64 row_at(Tile tile, const i64* offsets, u64 rows, u64 place) {
  u64 first = 0;
  while (rows > 1) {
    const u64 step = (rows + Tile::size - 1) / Tile::size, own = tile.lane() * step;
    const u32 lanes = tile.ballot(own < rows && offsets[first + own] <= static_cast<i64>(place));
    const u64 skipped = highest_one(lanes | 1) * step;
    first += skipped;
    rows = rows - skipped < step ? rows - skipped : step;
  }
  return first;
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

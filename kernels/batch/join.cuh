/// The pairs of a join, shared out by pair and not by key, so that a heavy key costs no more than many
/// light ones.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// Two sides of a join. The right rows of each key stand together.
struct JoinSides {
  const i64* offsets;  // of the left rows: where the pairs of each begin, and the last one's end
  const i64* keys;     // of the left rows: numbers, -1 for a key that the right side has not
  const i64* starts;   // of each key: where its right rows begin
  const i64* right_rows;
  u64 left_rows;
};

/// The left row whose pairs `pair` is among, which is not before row `from`.
DG_FN u64 left_row_of(const JoinSides& sides, u64 pair, u64 from) {
  const i64 wanted = static_cast<i64>(pair);
  u64 step = 1;
  for (; from + step < sides.left_rows && sides.offsets[from + step] <= wanted; step *= 2)
    from += step;
  u64 beyond = from + step < sides.left_rows ? from + step : sides.left_rows;
  while (beyond - from > 1) {
    const u64 middle = from + (beyond - from) / 2;
    if (sides.offsets[middle] <= wanted)
      from = middle;
    else
      beyond = middle;
  }
  return from;
}

/// Writes pairs [first, last), by left row and then by right row; -1 where there is no right row.
template <class Tile>
DG_FN void write_pairs(Tile tile, const JoinSides& sides, u64 first, u64 last, i64* left,
                       i64* right) {
  u64 row = 0;
  for (u64 pair = first + tile.lane(); pair < last; pair += Tile::size) {
    row = left_row_of(sides, pair, row);
    const i64 key = sides.keys[row];
    const u64 rank = pair - static_cast<u64>(sides.offsets[row]);
    left[pair] = static_cast<i64>(row);
    right[pair] = key < 0 ? -1 : sides.right_rows[static_cast<u64>(sides.starts[key]) + rank];
  }
}

}  // namespace dg

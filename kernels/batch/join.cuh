/// The pairs of a join, shared out by pair and not by key, so that a heavy key costs no more than many
/// light ones.
#pragma once

#include "batch/rows.cuh"
#include "core/fields.cuh"

namespace dg {

/// Two sides of a join. The right rows of each key stand together.
struct JoinSides {
  const i64* offsets;  // of the left rows: where the pairs of each begin, and the last one's end
  const i64* keys;     // of the left rows: numbers, -1 for a key that the right side has not
  const i64* starts;   // of each key: where its right rows begin
  const i64* right_rows;
  u64 left_rows;

  DG_FIELDS(offsets, keys, starts, right_rows, left_rows)
};

/// Writes pairs [first, last), by left row and then by right row; -1 where there is no right row.
template <class Tile>
DG_FN void write_pairs(Tile tile, const JoinSides& sides, u64 first, u64 last, i64* left,
                       i64* right) {
  u64 row = 0, end = 0, shift = 0;
  i64 key = -1;
  // On a CPU one lane goes through all rows of its own pairs.
  if constexpr (Tile::size > 1) row = row_at(tile, sides.offsets, sides.left_rows, first);
  for (u64 pair = first + tile.lane(); pair < last; pair += Tile::size) {
    if (pair >= end) {
      row = row_at(sides.offsets, sides.left_rows, pair, row);
      end = static_cast<u64>(sides.offsets[row + 1]);
      key = sides.keys[row];
      if (key >= 0) shift = static_cast<u64>(sides.starts[key] - sides.offsets[row]);
    }
    left[pair] = static_cast<i64>(row);
    right[pair] = key < 0 ? -1 : sides.right_rows[pair + shift];
  }
}

}  // namespace dg

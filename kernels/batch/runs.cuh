/// Runs of equal neighbours in a column of keys: where they begin.
#pragma once

#include "core/hash.cuh"
#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

template <class Key>
DG_FN bool begins_run(const Key* keys, u64 row) {
  return row == 0 || keys[row] != keys[row - 1];
}

/// What a batch was ordered by: the owner among `spread` of its keys' hashes. Equal keys stand
/// together but where other keys have the same owner.
struct RunOrder {
  u64 seed;
  u64 spread;  // 0: by the keys themselves

  template <class Key>
  DG_FN u64 owner(Key key) const {
    return owner_of_hash(hash_key(key, seed), spread);
  }
};

/// The runs that begin in rows [first, last). `mixed(row)` is called by the lane that sees another
/// key than before where the order does not tell the two apart.
template <class Tile, class Key, class Mixed>
DG_FN u64 count_runs(Tile tile, const Key* keys, const RunOrder& order, u64 first, u64 last,
                     const Mixed& mixed) {
  u64 runs = 0;
  u64 left_owner = order.spread && first > 0 ? order.owner(keys[first - 1]) : 0;
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const bool begins = row < last && begins_run(keys, row);
    if (order.spread) {
      const u64 owner = row < last ? order.owner(keys[row]) : 0;
      const u64 before = tile.shuffle(owner, (tile.lane() - 1) & (Tile::size - 1));
      if (begins && row > 0 && owner == (tile.lane() == 0 ? left_owner : before)) mixed(row);
      left_owner = tile.shuffle(owner, Tile::size - 1);
    }
    runs += count_ones(tile.ballot(begins));
  }
  return runs;
}

/// Writes the first row and the key of each run that begins in rows [first, last), from `place` on.
template <class Tile, class Key>
DG_FN void write_runs(Tile tile, const Key* keys, u64 first, u64 last, u64 place, i64* starts,
                      Key* run_keys) {
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const bool begins = row < last && begins_run(keys, row);
    const u32 peers = tile.ballot(begins);
    if (begins) {
      const u64 mine = place + count_ones(peers & ones_below(tile.lane()));
      starts[mine] = static_cast<i64>(row);
      run_keys[mine] = keys[row];
    }
    place += count_ones(peers);
  }
}

/// Rows of one owner, more than one key among them.
struct MixedRows {
  u64 first;
  u64 length;
};

/// The rows around `row`, which has another key than the one before it and the same owner. Of the
/// rows of one owner all but the first such `row` get a length of 0, unless there are very many.
template <class Key>
DG_FN MixedRows mixed_rows(const Key* keys, u64 rows, const RunOrder& order, u64 row) {
  constexpr u64 looked_at = 64;
  const u64 owner = order.owner(keys[row]);
  u64 first = row, step = 1;
  for (; first >= step && order.owner(keys[first - step]) == owner; step *= 2) first -= step;
  for (; step > 0; step /= 2)
    if (first >= step && order.owner(keys[first - step]) == owner) first -= step;
  for (u64 other = first + 1; other < row && other < first + looked_at; ++other)
    if (keys[other] != keys[first]) return {first, 0};
  u64 last = row;
  for (step = 1; last + step < rows && order.owner(keys[last + step]) == owner; step *= 2)
    last += step;
  for (; step > 0; step /= 2)
    if (last + step < rows && order.owner(keys[last + step]) == owner) last += step;
  return {first, last + 1 - first};
}

/// Brings the equal keys of a few rows together, in row order, by ascending hash. The scratch has as
/// many rows.
template <class Tile, class Key, class Value>
DG_FN void gather_keys(Tile tile, u64 seed, Key* keys, Value* values, u64 length, Key* scratch_keys,
                       Value* scratch_values) {
  const auto least_from = [&](u64 bound) {
    u64 least = ~0ull;
    for (u64 row = tile.lane(); row < length; row += Tile::size) {
      const u64 hash = hash_key(keys[row], seed);
      if (hash >= bound && hash < least) least = hash;
    }
    DG_UNROLL
    for (u32 distance = 1; distance < Tile::size; distance *= 2) {
      const u64 other = tile.shuffle(least, tile.lane() ^ distance);
      if (other < least) least = other;
    }
    return least;
  };
  // Different keys have different hashes; that of all ones, if it comes, comes last.
  u64 hash = 0;
  for (u64 place = 0; place < length; ++hash) {
    hash = least_from(hash);
    for (u64 start = 0; start < length; start += Tile::size) {
      const u64 row = start + tile.lane();
      const bool mine = row < length && hash_key(keys[row], seed) == hash;
      const u32 peers = tile.ballot(mine);
      if (mine) {
        const u64 to = place + count_ones(peers & ones_below(tile.lane()));
        scratch_keys[to] = keys[row];
        scratch_values[to] = values[row];
      }
      place += count_ones(peers);
    }
  }
  tile.sync();
  for (u64 row = tile.lane(); row < length; row += Tile::size) {
    keys[row] = scratch_keys[row];
    values[row] = scratch_values[row];
  }
}

}  // namespace dg

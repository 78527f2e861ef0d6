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

/// What a batch was ordered by: equal keys stand together but where different keys share this.
struct RunOrder {
  u64 seed;
  u64 spread;    // 0: by the keys themselves
  u64 key_mask;  // below 2**32: bits of the key that count, too

  template <class Key>
  DG_FN bool same(Key left, Key right) const {
    if (spread == 0 || ((left ^ right) & static_cast<Key>(key_mask))) return false;
    return owner_of_hash(hash_key(left, seed), spread) ==
           owner_of_hash(hash_key(right, seed), spread);
  }
};

/// The runs that begin in rows [first, last). `mixed(row)` is called by the lane that sees another
/// key than before where the order does not tell the two apart.
template <class Tile, class Key, class Mixed>
DG_FN u64 count_runs(Tile tile, const Key* keys, const RunOrder& order, u64 first, u64 last,
                     const Mixed& mixed) {
  u64 runs = 0;
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    const bool begins = row < last && begins_run(keys, row);
    if (begins && row > 0 && order.same(keys[row - 1], keys[row])) mixed(row);
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

}  // namespace dg

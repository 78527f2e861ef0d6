/// Runs of equal neighbours in a column of keys: where they begin.
#pragma once

#include "batch/rows.cuh"
#include "core/bucket.cuh"
#include "core/fields.cuh"
#include "core/hash.cuh"
#include "core/platform.cuh"
#include "core/slot.cuh"
#include "core/tile.cuh"

namespace dg {

/// What a batch was ordered by: the owner among `spread` of its keys' hashes. Equal keys stand
/// together but where other keys have the same owner.
struct RunOrder {
  u64 seed;
  u64 spread;  // below 2**32; 0: by the keys themselves

  DG_FIELDS(seed, spread)

  template <class Key>
  DG_FN u32 owner(Key key) const {
    return owner_of_hash(hash_key(key, seed), static_cast<u32>(spread));
  }
};

/// Calls `visit(row, keys, before, inside)` for rows [first, last), every lane with as many neighbouring
/// rows as fit 16 bytes: `inside` of its `keys` are rows from `row` on, `before` is the key before them.
template <class Tile, class Key, class Visit>
DG_FN void for_each_neighbours(Tile tile, const Key* keys, u64 first, u64 last,
                               const Visit& visit) {
  constexpr u32 together = kQuarterBytes / sizeof(Key);
  Key before = first > 0 ? keys[first - 1] : Key{0};
  for (u64 start = first; start < last; start += together * Tile::size) {
    const u64 row = start + together * tile.lane();
    const u64 left = row < last ? last - row : 0;
    Key own[together];
    if (left >= together && reinterpret_cast<unsigned long long>(keys + row) % kQuarterBytes == 0) {
      const Quarter seen = load_quarter<Access::frozen, Key>(keys + row);
      DG_UNROLL
      for (u32 i = 0; i < together; ++i) own[i] = Slot<Key, void>::key(seen, i);
    } else {
      DG_UNROLL
      for (u32 i = 0; i < together; ++i) own[i] = i < left ? keys[row + i] : Key{0};
    }
    const Key ended = own[together - 1];
    const Key passed = tile.shuffle(ended, (tile.lane() - 1) & (Tile::size - 1));
    visit(row, own, tile.lane() == 0 ? before : passed,
          static_cast<u32>(left < together ? left : together));
    before = tile.shuffle(ended, Tile::size - 1);
  }
}

/// Which of a lane's `inside` rows from `row` on begin a run, as bits.
template <u32 together, class Key>
DG_FN u32 runs_begun(u64 row, const Key (&keys)[together], Key before, u32 inside) {
  u32 begun = 0;
  DG_UNROLL
  for (u32 i = 0; i < together; ++i) {
    const bool begins = keys[i] != (i == 0 ? before : keys[i == 0 ? 0 : i - 1]) || row + i == 0;
    begun |= static_cast<u32>(begins && i < inside) << i;
  }
  return begun;
}

/// The runs that begin in rows [first, last), as the tile's last lane is told. `mixed(row)` is called
/// by the lane that sees the second of several keys that the order does not tell apart; as far as the
/// rows tell, so that the first run of the rows may be such as well.
template <class Tile, class Key, class Mixed>
DG_FN u64 count_runs(Tile tile, const Key* keys, const RunOrder& order, u64 first, u64 last,
                     const Mixed& mixed) {
  constexpr u32 together = kQuarterBytes / sizeof(Key);
  u64 runs = 0;
  bool owner_began = true;  // with the run before: its owner has no rows before it
  for_each_neighbours(
      tile, keys, first, last, [&](u64 row, const auto& own, Key before, u32 inside) {
        const u32 begun = runs_begun(row, own, before, inside);
        runs += count_ones(begun);
        if (order.spread == 0) return;
        u32 fresh = 0;  // runs whose owner begins with them
        if (begun != 0) {
          u32 owner_before = order.owner(before);
          DG_UNROLL
          for (u32 i = 0; i < together; ++i) {
            const u32 owner = order.owner(own[i]);
            fresh |= static_cast<u32>(owner != owner_before || row + i == 0) << i;
            owner_before = owner;
          }
        }
        const bool last_fresh = begun != 0 && (fresh >> highest_one(begun) & 1);
        const u32 lanes = tile.ballot(begun != 0), lanes_fresh = tile.ballot(last_fresh);
        const u32 below = lanes & ones_below(tile.lane());
        bool before_fresh = below ? lanes_fresh >> highest_one(below) & 1 : owner_began;
        DG_UNROLL
        for (u32 i = 0; i < together; ++i) {
          if (!(begun >> i & 1)) continue;
          const bool is_fresh = fresh >> i & 1;
          if (before_fresh && !is_fresh) mixed(row + i);
          before_fresh = is_fresh;
        }
        if (lanes) owner_began = lanes_fresh >> highest_one(lanes) & 1;
      });
  return inclusive_sum(tile, runs);
}

/// Writes the first row and the key of each run that begins in rows [first, last), from `place` on.
template <class Tile, class Key>
DG_FN void write_runs(Tile tile, const Key* keys, u64 first, u64 last, u64 place, i64* starts,
                      Key* run_keys) {
  for_each_neighbours(tile, keys, first, last,
                      [&](u64 row, const auto& own, Key before, u32 inside) {
                        const u32 begun = runs_begun(row, own, before, inside);
                        const u64 mine = count_ones(begun), sum = inclusive_sum(tile, mine);
                        u64 next = place + sum - mine;
                        DG_UNROLL
                        for (u32 i = 0; i < kQuarterBytes / sizeof(Key); ++i) {
                          if (!(begun >> i & 1)) continue;
                          starts[next] = static_cast<i64>(row + i);
                          run_keys[next++] = own[i];
                        }
                        place += tile.shuffle(sum, Tile::size - 1);
                      });
}

/// Rows of one owner, more than one key among them.
struct MixedRows {
  u64 first;
  u64 length;
};

/// The rows around `row`, which has another key than the one before it and the same owner. Of the
/// rows of one owner all but the first such `row` get a length of 0.
template <class Tile, class Owner, class Key>
DG_FN MixedRows mixed_rows(Tile tile, u64 rows, const Owner& owner_at, const Key& key_at, u64 row) {
  const auto owner = owner_at(row);
  u64 first = row, step = 1;
  for (; first >= step && owner_at(first - step) == owner; step *= 2) first -= step;
  for (; step > 0; step /= 2)
    if (first >= step && owner_at(first - step) == owner) first -= step;
  for (u64 start = first; start < row; start += Tile::size) {
    const u64 other = start + tile.lane();
    if (tile.any(other < row && key_at(other) != key_at(first))) return {first, 0};
  }
  u64 last = row;
  for (step = 1; last + step < rows && owner_at(last + step) == owner; step *= 2) last += step;
  for (; step > 0; step /= 2)
    if (last + step < rows && owner_at(last + step) == owner) last += step;
  return {first, last + 1 - first};
}

/// Calls `begins(row)` for the runs that begin after the first of rows [first, last).
template <class Tile, class Key, class Begins>
DG_FN void for_each_run(Tile tile, const Key* keys, u64 first, u64 last, const Begins& begins) {
  DG_ROLL
  for (u64 row = first + 1 + tile.lane(); row < last; row += Tile::size)
    if (keys[row] != keys[row - 1]) begins(row);
}

/// Calls `put(row, to, mine)` for a few rows by ascending hash, those of one hash in row order, by all lanes:
/// the row is a lane's own where it is `mine`.
template <class Tile, class Hash, class Put>
DG_FN void for_each_by_hash(Tile tile, u64 length, const Hash& hash_of, const Put& put) {
  const auto least_from = [&](u64 bound) {
    u64 least = ~0ull;
    DG_ROLL
    for (u64 row = tile.lane(); row < length; row += Tile::size) {
      const u64 hash = hash_of(row);
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
    DG_ROLL
    for (u64 start = 0; start < length; start += Tile::size) {
      const u64 row = start + tile.lane();
      const bool mine = row < length && hash_of(row) == hash;
      const u32 peers = tile.ballot(mine);
      put(row, place + count_ones(peers & ones_below(tile.lane())), mine);
      place += count_ones(peers);
    }
  }
}

/// Brings the equal keys of a few rows together, in row order, by ascending hash. The scratch has as
/// many rows.
template <class Tile, class Key, class Value>
DG_FN void gather_keys(Tile tile, u64 seed, Key* keys, Value* values, u64 length, Key* scratch_keys,
                       Value* scratch_values) {
  for_each_by_hash(
      tile, length, [&](u64 row) { return hash_key(keys[row], seed); },
      [&](u64 row, u64 to, bool mine) {
        if (!mine) return;
        scratch_keys[to] = keys[row];
        scratch_values[to] = values[row];
      });
  tile.sync();
  DG_ROLL
  for (u64 row = tile.lane(); row < length; row += Tile::size) {
    keys[row] = scratch_keys[row];
    values[row] = scratch_values[row];
  }
}

}  // namespace dg

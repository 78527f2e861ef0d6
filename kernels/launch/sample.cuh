/// The distinct keys of a batch whose hashes begin with zeros: as many of all keys, as those of all hashes;
/// and how many rows have them. And a few rows from everywhere.
#pragma once

#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "table/open.cuh"

namespace dg {

struct OpenSampleArgs {
  OpenStorage table;  // a set; gets the keys, and `state->pending` the number of their rows
  const void* keys;
  u64 seed;   // another one than the table's
  u64 zeros;  // 1 or more
  u64 limit;  // keys that the table takes
  u64 rows;
  u64 n;  // a kSampleRows-th of the rows

  DG_FIELDS(table, keys, seed, zeros, limit, rows, n)
};

/// Rows that a lane reads at once; as many parts of the batch are read side by side. As in
/// dgpuhash/backend/constants.py.
inline constexpr u32 kSampleRows = 4;

template <class Key, int W>
DG_KERNEL open_sample(OpenSampleArgs args) {
  const OpenTable<Key, void> table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  const Totals<1> totals{{&args.table.state->pending}};
  for_each_tile<W>(
      (args.n + W - 1) / W, totals,
      [&](auto tile, u64 group, Tally<1>& sampled) {
        const u64 first = group * tile.size + tile.lane();
        const auto there = [&](u32 i) { return first < args.n && first + i * args.n < args.rows; };
        const auto key_of = [&](u32 i) { return keys[there(i) ? first + i * args.n : 0]; };
        const auto sample = [&](u32 i, Key key) {
          if (!there(i) || hash_key(key, args.seed) >> (64 - args.zeros) != 0) return;
          ++sampled.of[0];
          table.insert(Tile<1>{}, key, NoValue{}, args.limit);
        };
        if constexpr (sizeof(Key) <= 8) {
          Key key[kSampleRows];
          DG_UNROLL
          for (u32 i = 0; i < kSampleRows; ++i) key[i] = key_of(i);
          DG_UNROLL
          for (u32 i = 0; i < kSampleRows; ++i) sample(i, key[i]);
        } else {
          // So many of 16 bytes would not leave registers for the insert.
          DG_ROLL
          for (u32 i = 0; i < kSampleRows; ++i) sample(i, key_of(i));
        }
        // Lanes that inserted would go on by themselves, at four times the time in all.
        tile.sync();
      },
      NoPrefetch{});
}

struct WitnessArgs {
  const void* keys;
  void* witnesses;  // three of each stretch
  u64 seed;
  u64 rows;  // eight or more for each stretch
  u64 n;     // stretches

  DG_FIELDS(keys, witnesses, seed, rows, n)
};

/// A number below `end`, by chance.
DG_FN u64 chosen_below(u64 end, u32 chance) { return chance * end >> 32; }

/// Of each stretch of rows a row in the first quarter, a later one in the first half, more often a near
/// one than a far one, and one in the second half.
template <class Key>
DG_KERNEL witnesses(WitnessArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<1>(args.n, [&](auto, u64 stretch) {
    const u64 quarter = args.rows / args.n / 4;
    const u64 chance = mix(stretch ^ spread_seed(args.seed)), more = mix(chance);
    const u64 row =
        stretch * (args.rows / args.n) + chosen_below(quarter, static_cast<u32>(chance));
    const u64 scale = 1ull << chosen_below(32, static_cast<u32>(more));
    const u64 distance =
        scale < quarter ? scale + chosen_below(scale, static_cast<u32>(more >> 32)) : 1;
    Key* to = static_cast<Key*>(args.witnesses) + 3 * stretch;
    to[0] = keys[row];
    to[1] = keys[row + (distance < quarter ? distance : quarter)];
    to[2] = keys[stretch * (args.rows / args.n) + 2 * quarter +
                 chosen_below(2 * quarter, static_cast<u32>(chance >> 32))];
  });
}

}  // namespace dg

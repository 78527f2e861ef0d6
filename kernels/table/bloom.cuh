/// The split block Bloom filter of Apache Parquet and Impala (parquet-format, BloomFilter.md; blocked filters:
/// Putze, Sanders, Singler 2007, "Cache-, Hash- and Space-Efficient Bloom Filters", §3): a key has one bit
/// in each 32-bit word of one block, which is a sector of memory.
#pragma once

#include "core/bucket.cuh"
#include "core/fields.cuh"
#include "core/hash.cuh"

namespace dg {

/// Words of a block. As in dgpuhash/backend/constants.py.
inline constexpr u32 kBloomWords = 4;

/// The blocks from `first` on, of a filter of `blocks`, which follow the order of hashes: the filters of the
/// keys of consecutive ranges of hashes, one after the other, are the filter of all their keys.
struct BloomBlocks {
  u64* words;
  u64 first;
  u64 blocks;  // in all
  u64 seed;

  DG_FIELDS(words, first, blocks, seed)

  DG_FN u64* block_of(u64 hash) const {
    return words + (mulhi(hash, blocks) - first) * kBloomWords;
  }

  /// The bits of a hash in one word of its block, in each half one. The block comes from the hash's top
  /// bits, these from its low ones.
  DG_FN static u64 bits_of(u32 hash, u32 word) {
    // No indexed array: that would lie in memory.
    const bool odd = word & 1;
    const u32 low = word & 2 ? (odd ? 0x9efc4947 : 0x705495c7) : (odd ? 0x8824ad5b : 0x47b6137b);
    const u32 high = word & 2 ? (odd ? 0x5c6bfb31 : 0x2df1424b) : (odd ? 0xa2b7289d : 0x44974d91);
    return 1ull << (hash * low >> 27) | 1ull << (32 + (hash * high >> 27));
  }

  /// Sets the bits of the key that each lane brings, where it is `asked` to. Four lanes set those of one
  /// key together, which is one request, and then those of the next.
  template <class Tile, class Key>
  DG_FN void insert(Tile tile, Key key, bool asked) const {
    constexpr u32 team = Tile::size < kBloomWords ? Tile::size : kBloomWords;
    const u64 hash = hash_key(key, seed);
    u64* const own = asked ? block_of(hash) : nullptr;
    const u32 member = tile.lane() % team, leader = tile.lane() - member;
    DG_UNROLL
    for (u32 turn = 0; turn < team; ++turn) {
      u64* const block =
          reinterpret_cast<u64*>(tile.shuffle(reinterpret_cast<u64>(own), leader + turn));
      const u32 low = tile.shuffle(static_cast<u32>(hash), leader + turn);
      if (block == nullptr) continue;
      for (u32 word = member; word < kBloomWords; word += team)
        atomic_or<Order::relaxed>(block + word, bits_of(low, word));
    }
  }

  /// Whether the key that each lane brings may have been inserted; of no meaning where it is not `asked`.
  /// Two lanes read the halves of one block together, which is one request, and then those of the next.
  template <class Tile, class Key>
  DG_FN bool contains(Tile tile, Key key, bool asked) const {
    constexpr u32 team = Tile::size < 2 ? 1 : 2;
    const u64 hash = hash_key(key, seed);
    const u64* const own = asked ? block_of(hash) : words;
    const u32 member = tile.lane() % team, leader = tile.lane() - member;
    Quarter seen[2];
    DG_UNROLL
    for (u32 turn = 0; turn < 2; ++turn) {
      const u64* const block = reinterpret_cast<const u64*>(
          tile.shuffle(reinterpret_cast<u64>(own), team == 1 ? leader : leader + turn));
      const u32 half = team == 1 ? turn : member;
      seen[turn] = load_quarter<Access::frozen, u64>(block + half * (kBloomWords / 2));
    }
    u32 passed = 0;  // a bit for each turn
    DG_UNROLL
    for (u32 turn = 0; turn < 2; ++turn) {
      const u32 low = tile.shuffle(static_cast<u32>(hash), team == 1 ? leader : leader + turn);
      const u32 word = (team == 1 ? turn : member) * (kBloomWords / 2);
      const Quarter& pair = seen[turn];
      const u64 missing = (bits_of(low, word) & ~(pair.word[0] | u64{pair.word[1]} << 32)) |
                          (bits_of(low, word + 1) & ~(pair.word[2] | u64{pair.word[3]} << 32));
      passed |= static_cast<u32>(missing == 0) << turn;
    }
    // A team of one has both halves of its block, of two each its half of both blocks.
    if constexpr (team == 1) return passed == 3;
    passed &= tile.shuffle(passed, tile.lane() ^ 1);
    return (passed >> member & 1) != 0;
  }

  template <class Key>
  DG_FN void prefetch_for(Key key) const {
    prefetch(block_of(hash_key(key, seed)));
  }
};

/// The set bits of a block, and the share of keys that were not inserted and yet pass there, in units of
/// 2^-28.
struct BloomFill {
  u32 ones = 0;
  u64 pass;

  DG_FN explicit BloomFill(const u64* block) {
    u64 product = 1;  // up to 2^40
    for (u32 half = 0; half < 2; ++half) {
      const Quarter words = load_quarter<Access::frozen, u64>(block + half * (kBloomWords / 2));
      for (u32 i = 0; i < 4; ++i) {
        const u32 count = count_ones(words.word[i]);
        ones += count;
        product *= count;
      }
    }
    pass = product >> 12;
  }
};

}  // namespace dg

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
  u64 held;    // less than 2^32
  u64 blocks;  // in all
  u64 seed;

  DG_FIELDS(words, first, held, blocks, seed)

  /// Which of the blocks here has a key's bits; not below `held` where another range has them.
  DG_FN u64 place_of(u64 hash) const { return mulhi(hash, blocks) - first; }

  /// The bits of a hash in one word of its block, in each half one. The block comes from the hash's top
  /// bits, these from its low ones.
  DG_FN static u64 bits_of(u32 hash, u32 word) {
    // No indexed array: that would lie in memory.
    const bool odd = word & 1;
    const u32 low = word & 2 ? (odd ? 0x9efc4947 : 0x705495c7) : (odd ? 0x8824ad5b : 0x47b6137b);
    const u32 high = word & 2 ? (odd ? 0x5c6bfb31 : 0x2df1424b) : (odd ? 0xa2b7289d : 0x44974d91);
    return 1ull << (hash * low >> 27) | 1ull << (32 + (hash * high >> 27));
  }

  /// Sets the bits of the key that each lane brings, where it is `asked` to and they are here. Four lanes set those of one
  /// key together, which is one request, and then those of the next. Bits are not looked at first: on an
  /// H100 that makes inserts of new keys a fifth slower in memory, and two fifths in the L2 cache.
  template <class Tile, class Key>
  DG_FN void insert(Tile tile, Key key, bool asked) const {
    constexpr u32 team = Tile::size < kBloomWords ? Tile::size : kBloomWords;
    constexpr u32 none = ~0u;
    const u64 hash = hash_key(key, seed);
    const u64 there = place_of(hash);
    const u32 own = asked && there < held ? static_cast<u32>(there) : none;
    const u32 member = tile.lane() % team, leader = tile.lane() - member;
    DG_UNROLL
    for (u32 turn = 0; turn < team; ++turn) {
      const u32 place = tile.shuffle(own, leader + turn);
      const u32 low = tile.shuffle(static_cast<u32>(hash), leader + turn);
      if (place == none) continue;
      for (u32 word = member; word < kBloomWords; word += team)
        atomic_or<Order::relaxed>(words + u64{place} * kBloomWords + word, bits_of(low, word));
    }
  }

  /// Which of the keys that the lanes bring may have been inserted: bit l of `passed[i]` tells it of key i
  /// of lane l, and nothing where that is not `asked` or another range has it. Two lanes read the halves of one block together,
  /// which is one request, and then those of the next; blocks of all keys are on their way at once.
  template <u32 count, class Tile, class Key>
  DG_FN void contains(Tile tile, const Key (&keys)[count], const bool (&asked)[count],
                      u32 (&passed)[count]) const {
    constexpr bool alone = Tile::size == 1;
    const u32 member = tile.lane() & 1, leader = tile.lane() - member;
    u32 low[count];
    Quarter seen[count][2];
    DG_UNROLL
    for (u32 i = 0; i < count; ++i) {
      const u64 hash = hash_key(keys[i], seed);
      const u64 there = place_of(hash);
      const u32 own = asked[i] && there < held ? static_cast<u32>(there) : 0;
      low[i] = static_cast<u32>(hash);
      DG_UNROLL
      for (u32 turn = 0; turn < 2; ++turn) {
        const u32 place = alone ? own : tile.shuffle(own, leader + turn);
        const u32 half = alone ? turn : member;
        seen[i][turn] = load_quarter<Access::staying, u64>(words + u64{place} * kBloomWords +
                                                           half * (kBloomWords / 2));
      }
    }
    DG_UNROLL
    for (u32 i = 0; i < count; ++i) {
      u32 whole[2];  // of the lanes' halves of blocks, where all bits are set
      DG_UNROLL
      for (u32 turn = 0; turn < 2; ++turn) {
        const u32 bits = alone ? low[i] : tile.shuffle(low[i], leader + turn);
        const u32 word = (alone ? turn : member) * (kBloomWords / 2);
        const Quarter& pair = seen[i][turn];
        const u64 missing = (bits_of(bits, word) & ~(pair.word[0] | u64{pair.word[1]} << 32)) |
                            (bits_of(bits, word + 1) & ~(pair.word[2] | u64{pair.word[3]} << 32));
        whole[turn] = tile.ballot(missing == 0);
      }
      constexpr u32 leaders = 0x55555555;
      passed[i] =
          alone ? whole[0] & whole[1]
                : (whole[0] & whole[0] >> 1 & leaders) | (whole[1] & whole[1] >> 1 & leaders) << 1;
    }
  }

  template <class Key>
  DG_FN void prefetch_for(Key key) const {
    prefetch(words + place_of(hash_key(key, seed)) * kBloomWords);
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

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
  DG_FN static u64 bits_of(u64 hash, u32 word) {
    constexpr u32 salts[2 * kBloomWords] = {0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d,
                                            0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31};
    u32 low = 0, high = 0;
    // No indexed array: that would lie in memory.
    DG_UNROLL
    for (u32 i = 0; i < kBloomWords; ++i) {
      if (i != word) continue;
      low = static_cast<u32>(hash) * salts[2 * i] >> 27;
      high = static_cast<u32>(hash) * salts[2 * i + 1] >> 27;
    }
    return 1ull << low | 1ull << (32 + high);
  }

  template <class Tile, class Key>
  DG_FN void add(Tile tile, Key key) const {
    const u64 hash = hash_key(key, seed);
    u64* const block = block_of(hash);
    for (u32 word = tile.lane(); word < kBloomWords; word += Tile::size)
      atomic_or<Order::relaxed>(block + word, bits_of(hash, word));
  }

  /// Whether a key may have been added; by one lane.
  template <class Key>
  DG_FN bool test(Key key) const {
    const u64 hash = hash_key(key, seed);
    const u64* const block = block_of(hash);
    u64 missing = 0;
    DG_UNROLL
    for (u32 word = 0; word < kBloomWords; word += 2) {
      const Quarter pair = load_quarter<Access::frozen, u64>(block + word);
      missing |= bits_of(hash, word) & ~(pair.word[0] | u64{pair.word[1]} << 32);
      missing |= bits_of(hash, word + 1) & ~(pair.word[2] | u64{pair.word[3]} << 32);
    }
    return missing == 0;
  }

  template <class Key>
  DG_FN void prefetch_for(Key key) const {
    prefetch(block_of(hash_key(key, seed)));
  }
};

}  // namespace dg

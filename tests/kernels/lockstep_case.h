/// Tables in vectors, and checks that end the program: what the lockstep tests share.
#pragma once

#define DG_LOCKSTEP
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "host/lockstep.h"
// With DG_ROW undefined: the kernels' files.
#include "host/instances.inc"

#define CHECK(claim)                                                             \
  do {                                                                           \
    if (!(claim)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

namespace dg::test {

struct alignas(kBucketBytes) Bucket {
  u64 word[8];
};

/// A cleared table of so many segments of 2^`segment_shift` buckets.
template <class Key, class Value>
struct TableMemory {
  using Slots = Slot<Key, Value>;

  std::vector<Bucket> buckets;
  std::vector<u64> values;
  std::vector<u32> overflow;
  OpenState state{0, 0, 0, 0, {0, 0}, {~0ull, ~0ull}};
  OpenStorage storage;

  explicit TableMemory(u64 segments, u64 segment_shift = 0, u64 seed = 1)
      : buckets(segments << segment_shift),
        values(buckets.size() * Slots::per_bucket, ~0ull),
        overflow(buckets.size() / 2 + 2, 0) {
    for (auto& bucket : buckets)
      for (auto& word : bucket.word) word = ~0ull;
    const bool split = Slots::has_value && !Slots::paired;
    storage = {buckets.data(),
               split ? values.data() : nullptr,
               &state,
               overflow.data(),
               buckets.size(),
               segment_shift,
               seed};
  }
  TableMemory(const TableMemory&) = delete;
};

/// Makes a partition's counts their exclusive sums, by part first and segment second.
inline u64 sum_up(std::vector<u64>& counters) {
  u64 place = 0;
  for (u64& counter : counters) {
    const u64 count = counter;
    counter = place;
    place += count;
  }
  return place;
}

/// Calls `run.template operator()<W>()` for every tile width; wide tiles come in smaller crews of
/// tiles.
template <class Run>
void for_each_width(const Run& run) {
  lockstep::tiles = 8;
  run.template operator()<1>();
  lockstep::tiles = 4;
  run.template operator()<2>();
  run.template operator()<4>();
  lockstep::tiles = 3;
  run.template operator()<8>();
  lockstep::tiles = 2;
  run.template operator()<16>();
  run.template operator()<32>();
}

/// Calls `run.template operator()<Key, Value, Threads>(random)` for pairs of each layout, with so many
/// blocks of `Threads` lanes at once.
template <u32 Threads, class Run>
void for_each_layout(u32 blocks, const Run& run) {
  std::mt19937 random(Threads);
  lockstep::tiles = blocks;
  run.template operator()<u32, u32, Threads>(random);
  run.template operator()<u64, u64, Threads>(random);
  run.template operator()<u64, void, Threads>(random);
  run.template operator()<u32, u64, Threads>(random);
}

/// One of many different keys. One half of two in three of 16 bytes is that of a mark, as a torn one would be.
template <class Key>
Key numbered_key(u32 number) {
  if constexpr (sizeof(Key) <= 8)
    return number;
  else if (number % 3 == 0)
    return {number, ~0ull};
  else
    return {number % 3 == 1 ? ~0ull : number, number};
}

/// Keys from a small range, so that tiles meet, and now and then one with the bits of a mark.
template <class Key>
std::vector<Key> contended_keys(std::mt19937& random, std::size_t n, u64 range) {
  std::vector<Key> keys(n);
  for (auto& key : keys) {
    key = numbered_key<Key>(static_cast<u32>(random() % range));
    if (random() % 16 == 0) key = Mark<Key>::empty - random() % 2;
  }
  return keys;
}

}  // namespace dg::test

/// Bloom filters by tiles of every width, against bits set one by one: whole, and in ranges of hashes that are
/// put together.
#include <algorithm>

#include "lockstep_case.h"

namespace dg::test {
namespace {

struct alignas(32) Block {
  u64 word[kBloomWords] = {};
};

template <class Key, int W>
std::vector<Block> filter_of(const std::vector<Key>& keys, u64 first, u64 held, u64 blocks) {
  std::vector<Block> made(held);
  bloom_insert<Key, W>({{made.data()->word, first, held, blocks, 7}, keys.data(), keys.size()});
  return made;
}

template <class Key, int W>
void filters() {
  std::mt19937 random(W);
  const u64 blocks = 12, held = 4, rows = 200;
  std::vector<Key> keys = contended_keys<Key>(random, rows, 300);
  std::vector<Block> expected(blocks);
  std::vector<std::vector<Key>> ranges(blocks / held);
  for (const Key key : keys) {
    const u64 hash = hash_key(key, 7), block = mulhi(hash, blocks);
    for (u32 word = 0; word < kBloomWords; ++word)
      expected[block].word[word] |= BloomBlocks::bits_of(static_cast<u32>(hash), word);
    ranges[owner_of_hash(hash, blocks / held)].push_back(key);
  }
  const auto same_words = [](const Block& left, const Block& right) {
    return std::equal(left.word, left.word + kBloomWords, right.word);
  };
  std::vector<Block> made = filter_of<Key, W>(keys, 0, blocks, blocks);
  CHECK(std::equal(made.begin(), made.end(), expected.begin(), same_words));
  for (u64 range = 0; range < ranges.size(); ++range) {
    // Keys of other ranges leave no bits.
    for (const auto& given : {ranges[range], keys}) {
      const auto part = filter_of<Key, W>(given, range * held, held, blocks);
      CHECK(std::equal(part.begin(), part.end(), expected.begin() + static_cast<i64>(range * held),
                       same_words));
    }
  }
  u64 ones = 0, passing = 0, expected_ones = 0, expected_passing = 0;
  bloom_fill({made.data()->word, &ones, &passing, blocks});
  for (const Block& block : expected) {
    u64 product = 1;
    for (const u64 word : block.word) {
      expected_ones += count_ones(word);
      product *= count_ones(static_cast<u32>(word)) * count_ones(static_cast<u32>(word >> 32));
    }
    expected_passing += product >> 12;
  }
  CHECK(ones == expected_ones && passing == expected_passing);
  std::vector<Key> others(4000);
  for (auto& key : others) key = static_cast<Key>(1000 + random() % 100000);
  // The last rows do not fill a tile's group; nothing is written past them.
  const auto passing_of = [&](const std::vector<Block>& of, u64 first,
                              const std::vector<Key>& asked, u64 count) {
    std::vector<u8> passed(count + 8, 2);
    bloom_contains<Key, W>({{const_cast<u64*>(of.data()->word), first, of.size(), blocks, 7},
                            asked.data(),
                            passed.data(),
                            count});
    for (u64 row = count; row < passed.size(); ++row) CHECK(passed[row] == 2);
    passed.resize(count);
    return passed;
  };
  for (const u64 count : {u64{0}, u64{1}, u64{5}, rows - 1, rows})
    for (const u8 each : passing_of(made, 0, keys, count)) CHECK(each == 1);
  const std::vector<u8> answers = passing_of(made, 0, others, others.size());
  u64 wrong = 0;
  for (u64 row = 0; row < others.size(); ++row) {
    const u64 hash = hash_key(others[row], 7), block = mulhi(hash, blocks);
    bool whole = true;
    for (u32 word = 0; word < kBloomWords; ++word)
      whole &=
          (BloomBlocks::bits_of(static_cast<u32>(hash), word) & ~expected[block].word[word]) == 0;
    CHECK(answers[row] == whole);
    wrong += whole;
  }
  CHECK(wrong < others.size() / 20);
  for (u64 range = 0; range < ranges.size(); ++range) {
    const std::vector<Block> part(made.begin() + static_cast<i64>(range * held),
                                  made.begin() + static_cast<i64>((range + 1) * held));
    for (const u8 each : passing_of(part, range * held, ranges[range], ranges[range].size()))
      CHECK(each == 1);
    passing_of(part, range * held, others, others.size());
  }
}

template <class Key>
void all_widths(const char* name) {
  for_each_width([]<int W>() { filters<Key, W>(); });
  std::printf("Bloom filters %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::all_widths<u32>("u32");
  test::all_widths<u64>("u64");
}

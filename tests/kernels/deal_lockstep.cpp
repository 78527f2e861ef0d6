/// Batches dealt out to few parts by tiles of every width, against std::stable_sort, and brought back.
#include <algorithm>
#include <numeric>

#include "lockstep_case.h"

namespace dg::test {
namespace {

template <class Key, u32 Threads>
void deal(u64 parts, const std::vector<Key>& keys) {
  using Block = lockstep::LockstepBlock<Threads>;
  constexpr int width = Block::Lanes::size;
  const u64 rows = keys.size(), segment_rows = 2 * kDealItems * width;
  const u64 segments = rows / segment_rows + 1;
  const Digit digit{7, parts, 0, ~0u};
  std::vector<Key> keys_to(rows);
  std::vector<u8> parts_of(rows, 255);
  std::vector<u64> counters(parts * segments + 1, ~0ull), starts(parts + 1, ~0ull);
  deal_count<Key, width>(
      {digit, keys.data(), parts_of.data(), counters.data(), rows, parts, segment_rows, segments});
  for (u64 row = 0; row < rows; ++row) CHECK(parts_of[row] == digit.of(keys[row]));
  std::vector<u64> summed(counters.begin(), counters.end() - 1);
  CHECK(sum_up(summed) == rows);
  summed.push_back(rows);
  deal_places<Threads>({{counters.data(), starts.data(), parts, segments, segments, 1}});
  CHECK(counters == summed);
  for (u64 part = 0; part <= parts; ++part) CHECK(starts[part] == summed[part * segments]);
  const u64 blocks = (segments + Block::tiles - 1) / Block::tiles;
  deal_move<Key, Threads>({{keys.data(), keys_to.data(), parts_of.data(), counters.data(), rows,
                            parts, segments, segment_rows, blocks}});
  std::vector<u64> expected(rows);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](u64 left, u64 right) { return parts_of[left] < parts_of[right]; });
  std::vector<Key> words(rows), words_back(rows);
  std::vector<u8> flags(rows), flags_back(rows);
  for (u64 to = 0; to < rows; ++to) {
    const u64 row = expected[to];
    CHECK(keys_to[to] == keys[row]);
    words[to] = static_cast<Key>(row + 3);
    flags[to] = static_cast<u8>(row % 5);
  }
  const auto bring_back = [&](bool some_words, bool some_flags) {
    deal_back<Key, width>({some_words ? words.data() : nullptr, some_flags ? flags.data() : nullptr,
                           words_back.data(), flags_back.data(), parts_of.data(), counters.data(),
                           nullptr, rows, parts, segment_rows, segments});
  };
  bring_back(true, false);
  for (u64 row = 0; row < rows; ++row) {
    CHECK(words_back[row] == static_cast<Key>(row + 3));
    CHECK(flags_back[row] == 0);
  }
  bring_back(false, true);
  for (u64 row = 0; row < rows; ++row) CHECK(flags_back[row] == static_cast<u8>(row % 5));
  std::fill(words_back.begin(), words_back.end(), Key{0});
  bring_back(true, true);
  for (u64 row = 0; row < rows; ++row) CHECK(words_back[row] == static_cast<Key>(row + 3));
  // With room between the parts.
  std::vector<u64> pads(parts);
  std::vector<Key> spaced(rows + 3 * parts);
  for (u64 part = 0; part < parts; ++part) pads[part] = 3 * part + 1;
  for (u64 to = 0; to < rows; ++to) spaced[to + pads[parts_of[expected[to]]]] = words[to];
  std::fill(words_back.begin(), words_back.end(), Key{0});
  deal_back<Key, width>({spaced.data(), nullptr, words_back.data(), nullptr, parts_of.data(),
                         counters.data(), pads.data(), rows, parts, segment_rows, segments});
  for (u64 row = 0; row < rows; ++row) CHECK(words_back[row] == static_cast<Key>(row + 3));
}

template <class Key, u32 Threads>
void cases(std::mt19937& random) {
  const auto keys = [&](u64 rows, Key range) {
    std::vector<Key> made(rows);
    for (auto& key : made) key = static_cast<Key>(random()) % range;
    return made;
  };
  constexpr u64 most = kDealParts<typename lockstep::LockstepBlock<Threads>::Lanes>;
  for (const u64 parts : {u64{1}, u64{2}, u64{3}, u64{7}, u64{8}, most})
    if (parts <= most) {
      deal<Key, Threads>(parts, keys(700, ~Key{0}));
      // No rows, few, whole steps, and one key alone.
      for (const u64 rows : {0, 1, 6, 256}) deal<Key, Threads>(parts, keys(rows, 1));
    }
}

}  // namespace
}  // namespace dg::test

int main() {
  std::mt19937 random(3);
  const auto run = [&]<dg::u32 Threads>(dg::u32 blocks) {
    dg::lockstep::tiles = blocks;
    dg::test::cases<dg::u32, Threads>(random);
    dg::test::cases<dg::u64, Threads>(random);
  };
  run.operator()<1>(4);
  run.operator()<4>(3);
  run.operator()<16>(2);
  run.operator()<32>(1);
  std::printf("deal: passed\n");
}

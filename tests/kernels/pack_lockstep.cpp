/// Ranges of columns by tiles of every width, and keys packed by them, against the same row by row.
#include <algorithm>
#include <limits>

#include "lockstep_case.h"

namespace dg::test {
namespace {

struct Columns {
  std::vector<i64> wide;
  std::vector<signed char> narrow;
  std::vector<u8> nulls;

  KeyColumns described() const {
    KeyColumns made{};
    made.values[0] = wide.data();
    made.values[1] = narrow.data();
    made.nulls[1] = nulls.data();
    made.readings[0] = Reading::i64;
    made.readings[1] = Reading::i8;
    made.count = 2;
    return made;
  }
};

template <int W>
void ranges() {
  std::mt19937 random(W);
  constexpr u64 sign = 1ull << 63;
  for (const u64 rows : {0, 1, 5, 200}) {
    Columns columns;
    std::vector<u64> expected(4);
    for (u64 row = 0; row < rows; ++row) {
      columns.wide.push_back(static_cast<i64>(random() % 1000) - 700);
      columns.narrow.push_back(static_cast<signed char>(random()));
      columns.nulls.push_back(random() % 3 == 0);
      const u64 ranks[] = {static_cast<u64>(columns.wide.back()) ^ sign,
                           static_cast<u64>(i64{columns.narrow.back()}) ^ sign};
      for (u64 i = 0; i < 2; ++i) {
        if (i == 1 && columns.nulls.back()) continue;
        expected[2 * i] = std::max(expected[2 * i], ~ranks[i]);
        expected[2 * i + 1] = std::max(expected[2 * i + 1], ranks[i]);
      }
    }
    std::vector<u64> ends(4);
    const u64 segment_rows = 48;
    key_ranges<W>({columns.described(), ends.data(), rows, segment_rows,
                   (rows + segment_rows - 1) / segment_rows});
    CHECK(ends == expected);
  }
}

template <class Word>
void codes() {
  constexpr Word outside = std::numeric_limits<Word>::max();
  const Columns columns{{-5, -4, -3, -6, -5, -5}, {1, 2, 3, 2, 9, 0}, {0, 0, 0, 0, 1, 0}};
  KeyColumns described = columns.described();
  const u64 sign = 1ull << 63;
  const u64 leasts[] = {static_cast<u64>(i64{-5}) ^ sign, 1ull ^ sign};
  for (const bool nulls : {true, false}) {
    for (u64 i = 0; i < 2; ++i) {
      described.leasts[i] = leasts[i];
      described.counts[i] = described.radixes[i] = 3;
    }
    if (nulls) described.radixes[1] = 4;
    const Word radix = nulls ? 4 : 3;
    std::vector<Word> made(7, 7);
    pack_keys<Word>({described, made.data(), 6});
    CHECK((made == std::vector<Word>{0, static_cast<Word>(radix + 1),
                                     static_cast<Word>(2 * radix + 2), outside,
                                     nulls ? Word{3} : outside, outside, 7}));
  }
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg::test;
  for_each_width([]<int W>() { ranges<W>(); });
  codes<dg::u32>();
  codes<dg::u64>();
  std::printf("packed keys: passed\n");
}

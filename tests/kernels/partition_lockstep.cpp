/// Stable partition by blocks of several tiles, against std::stable_sort.
#include <algorithm>
#include <numeric>

#include "lockstep_case.h"

namespace dg::test {
namespace {

struct Case {
  u64 rows;
  u32 parts;
  Digit digit;
};

/// The exclusive sums of the counts, by part first and segment second.
u64 sum_up(std::vector<u64>& counters) {
  u64 place = 0;
  for (u64& counter : counters) {
    const u64 count = counter;
    counter = place;
    place += count;
  }
  return place;
}

template <class Key, class Value, u32 Threads>
void partition(const Case& wanted, const std::vector<Key>& keys) {
  using Word = typename StoredAs<Value>::Type;
  constexpr bool has_value = !same<Value, void>;
  using Step = PartStep<lockstep::LockstepBlock<Threads>, Key, Word>;
  u64 segment_rows = 100;
  if constexpr (Threads != 1) segment_rows = 2 * Step::rows;
  const u64 segments = (wanted.rows + segment_rows - 1) / segment_rows;
  std::vector<u64> counters(segments * wanted.parts, ~0ull);
  std::vector<Word> values(wanted.rows), values_to(wanted.rows);
  if constexpr (has_value)
    for (u64 row = 0; row < wanted.rows; ++row) values[row] = static_cast<Word>(row * 7 + 1);
  std::vector<Key> keys_to(wanted.rows);
  std::vector<i64> numbers(wanted.rows, -1), expected(wanted.rows);
  const PartitionArgs args{wanted.digit,     keys.data(),    values.data(),   keys_to.data(),
                           values_to.data(), numbers.data(), counters.data(), wanted.rows,
                           wanted.parts,     segment_rows,   segments};
  partition_count<Key, Threads>({args});
  CHECK(sum_up(counters) == wanted.rows);
  partition_scatter<Key, Value, Threads>({args});
  const auto part = [&](i64 row) { return wanted.digit.of(keys[static_cast<u64>(row)]); };
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](i64 left, i64 right) { return part(left) < part(right); });
  CHECK(numbers == expected);
  for (u64 place = 0; place < wanted.rows; ++place) {
    const u64 row = static_cast<u64>(numbers[place]);
    CHECK(keys_to[place] == keys[row]);
    if constexpr (has_value) CHECK(values_to[place] == values[row]);
  }
}

template <class Key, class Value, u32 Threads>
void cases(std::mt19937& random) {
  const auto keys = [&](u64 rows, Key range) {
    std::vector<Key> made(rows);
    for (auto& key : made) key = static_cast<Key>(random()) % range;
    return made;
  };
  partition<Key, Value, Threads>({1, 1, {0, 0, 0, 0}}, {5});
  partition<Key, Value, Threads>({300, 2, {7, 2, 0, ~0u}}, keys(300, ~Key{0}));
  partition<Key, Value, Threads>({900, 7, {3, 7, 0, ~0u}}, keys(900, 1000));
  partition<Key, Value, Threads>({700, 256, {0, 0, 8, 255}}, keys(700, 65536));
  partition<Key, Value, Threads>({500, 200, {1, 51200, 8, 255}}, keys(500, ~Key{0}));
  // Steps that fill granules and leave some of a part waiting, over several segments.
  partition<Key, Value, Threads>({3000, 3, {3, 3, 0, ~0u}}, keys(3000, ~Key{0}));
  // One key alone.
  partition<Key, Value, Threads>({600, 256, {0, 256, 0, 255}}, keys(600, 1));
}

}  // namespace
}  // namespace dg::test

int main() {
  using dg::u32;
  const auto run = []<class Key, class Value, u32 Threads>(std::mt19937& random) {
    dg::test::cases<Key, Value, Threads>(random);
  };
  dg::test::for_each_layout<1>(4, run);
  dg::test::for_each_layout<2>(3, run);
  dg::test::for_each_layout<8>(2, run);
  dg::test::for_each_layout<16>(2, run);
  std::printf("partition: passed\n");
}

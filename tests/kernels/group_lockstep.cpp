/// Numbers for keys, reductions by number and the pairs of joins, by tiles of every width, against
/// plain loops.
#include <algorithm>

#include "lockstep_case.h"

namespace dg::test {
namespace {

template <class Key, int W>
void number(std::mt19937& random, u64 rows, u32 range, bool repeats) {
  const auto keys = contended_keys<Key>(random, rows, range);
  std::map<Key, u64> numbers;
  std::vector<i64> first_rows;
  std::vector<u64> expected;
  for (u64 row = 0; row < rows; ++row) {
    if (numbers.emplace(keys[row], numbers.size()).second)
      first_rows.push_back(static_cast<i64>(row));
    expected.push_back(numbers[keys[row]]);
  }
  TableMemory<Key, u64> memory(2 * rows);
  std::vector<u64> slots(rows, 7);
  u64 refused = 0;
  // Two launches, as Python makes them.
  for (const auto& [first, count] : {std::pair<u64, u64>{0, rows / 3}, {rows / 3, rows - rows / 3}})
    group_place<Key, W>(GroupPlaceArgs{memory.storage, keys.data(), slots.data(), &refused, count,
                                       first, ~0ull, repeats});
  CHECK(refused == 0);
  CHECK(memory.state.occupied == numbers.size());
  for (u64 row = 0; row < rows; ++row) {
    const u64 first = *OpenTable<Key, u64>{memory.storage}.value_at(slots[row]);
    CHECK(first == static_cast<u64>(first_rows[expected[row]]));
  }
  group_number<Key>({memory.storage, slots.data(), first_rows.data(), first_rows.size()});
  group_codes<Key>({memory.storage, slots.data(), rows});
  CHECK(slots == expected);
}

/// A table that is too small refuses some rows and counts no more keys than it may hold.
template <int W>
void refuse(std::mt19937& random) {
  const auto keys = contended_keys<u32>(random, 300, 100000);
  TableMemory<u32, u64> memory(2);
  std::vector<u64> slots(keys.size());
  u64 refused = 0;
  group_place<u32, W>(
      GroupPlaceArgs{memory.storage, keys.data(), slots.data(), &refused, keys.size(), 0, 20, 1});
  CHECK(refused > 0);
  CHECK(memory.state.occupied <= 22);
}

template <int W>
void reduce(std::mt19937& random, u64 rows, u64 groups, u64 copies, bool alone) {
  const u64 segments = 7, segment_rows = (rows + segments - 1) / segments;
  std::vector<i64> codes(rows), values(rows);
  std::vector<double> reals(rows);
  for (u64 row = 0; row < rows; ++row) {
    codes[row] = static_cast<i64>(random() % groups);
    values[row] = static_cast<i64>(random()) - (1ll << 31);
    // Whole numbers, so that every order of adding gives the same.
    reals[row] = random() % 8 ? static_cast<double>(random() % 1000) : __builtin_nan("");
  }
  std::vector<std::vector<u64>> totals;
  std::vector<ReduceColumn> columns;
  const auto ask = [&](const void* from, Reading reading, Term term, Fold fold) {
    totals.emplace_back(copies * groups, neutral(fold));
    columns.push_back({from, nullptr, reading, term, fold});
  };
  ask(values.data(), Reading::i64, Term::integer, Fold::sum);
  ask(values.data(), Reading::i64, Term::rank, Fold::least);
  ask(reals.data(), Reading::f64, Term::real, Fold::real_sum);
  ask(reals.data(), Reading::f64, Term::row, Fold::greatest);
  ask(nullptr, Reading::u8, Term::one, Fold::sum);
  for (u64 i = 0; i < columns.size(); ++i) columns[i].totals = totals[i].data();
  const ReduceBatch batch{codes.data(), nullptr, columns.data(), columns.size(), alone, W == 8};
  group_reduce<W>({batch, nullptr, rows, segment_rows, groups, copies, segments});
  for (u64 group = 0; group < groups; ++group) {
    u64 sum = 0, least = ~0ull, last = 0, count = 0;
    double real = 0;
    for (u64 row = 0; row < rows; ++row) {
      if (codes[row] != static_cast<i64>(group)) continue;
      ++count;
      sum += static_cast<u64>(values[row]);
      least = std::min(least, static_cast<u64>(values[row]) ^ 1ull << 63);
      if (reals[row] == reals[row]) real += reals[row], last = row + 1;
    }
    const auto total = [&](u64 column, Fold fold) {
      u64 word = neutral(fold);
      for (u64 copy = 0; copy < copies; ++copy)
        word = folded(fold, word, totals[column][copy * groups + group]);
      return word;
    };
    CHECK(total(0, Fold::sum) == sum);
    CHECK(total(1, Fold::least) == least);
    CHECK(real_of(total(2, Fold::real_sum)) == real);
    CHECK(total(3, Fold::greatest) == last);
    CHECK(total(4, Fold::sum) == count);
  }
}

/// Left rows of no, one or many pairs each; -1 stands for a row that is kept without a partner.
template <int W>
void pair(std::mt19937& random, u64 left_rows, i64 groups, u32 most) {
  std::vector<i64> starts{0}, right_rows, offsets{0}, keys(left_rows), left, right;
  for (i64 group = 0; group < groups; ++group)
    starts.push_back(starts.back() + static_cast<i64>(random() % most));
  for (i64 row = 0; row < starts.back(); ++row) right_rows.push_back(7 * row % starts.back());
  for (u64 row = 0; row < left_rows; ++row) {
    const i64 key = keys[row] = static_cast<i64>(random() % static_cast<u64>(groups + 1)) - 1;
    const i64 first = key < 0 ? 0 : starts[key], last = key < 0 ? 1 : starts[key + 1];
    for (i64 place = first; place < last; ++place) {
      left.push_back(static_cast<i64>(row));
      right.push_back(key < 0 ? -1 : right_rows[place]);
    }
    offsets.push_back(static_cast<i64>(left.size()));
  }
  std::vector<i64> found_left(left.size(), -9), found_right(left.size(), -9);
  const JoinSides sides{offsets.data(), keys.data(), starts.data(), right_rows.data(), left_rows};
  join_pairs<W>(
      {sides, found_left.data(), found_right.data(), left.size(), 50, (left.size() + 49) / 50});
  CHECK(found_left == left);
  CHECK(found_right == right);
}

}  // namespace
}  // namespace dg::test

int main() {
  dg::test::for_each_width([]<int W>() {
    using namespace dg::test;
    std::mt19937 random(W);
    for (const bool repeats : {false, true}) {
      number<dg::u32, W>(random, 120, 7, repeats);
      number<dg::u64, W>(random, 150, 200, repeats);
    }
    refuse<W>(random);
    reduce<W>(random, 200, 1, 7, true);
    reduce<W>(random, 300, 20, 7, true);
    reduce<W>(random, 300, 5, 1, false);
    reduce<W>(random, 100, 90, 1, false);
    pair<W>(random, 300, 20, 2);
    pair<W>(random, 20, 5, 60);
    pair<W>(random, 1, 1, 200);
  });
  std::printf("groups: passed\n");
}

/// Numbers for keys, reductions by number and the pairs of joins, by tiles of every width, against
/// plain loops.
#include <algorithm>
#include <cstdint>

#include "lockstep_case.h"

namespace dg::test {
namespace {

/// Empty records of `words` words, of which `ones` begin as all ones.
struct GroupMemory {
  std::vector<u64> words_of_all;
  GroupStorage storage;
  u64 records;

  GroupMemory(u64 lines, u64 words, u64 most_lines, u64 ones = 3)
      : records(lines * (words < 8 ? 8 / words : 1) + 1) {
    // Loads of 16 bytes want their alignment.
    words_of_all.resize(records * words + 8);
    auto* const start = reinterpret_cast<u64*>(
        (reinterpret_cast<std::uintptr_t>(words_of_all.data()) + 63) / 64 * 64);
    storage = {start, lines, words, words < 8 ? 8 / words : 1, most_lines, 0};
    group_clear({storage, ones, records * words});
  }
  GroupMemory(const GroupMemory&) = delete;

  /// The first rows in order, and the set of them.
  template <int W>
  std::vector<i64> rank(std::vector<u64>& marks, u64 rows) const {
    const u64 words = (rows + 63) / 64;
    marks.assign(2 * words, 0);
    std::vector<u64> ends(words);
    group_mark({storage, {marks.data()}, records});
    group_count({{marks.data()}, ends.data(), words});
    for (u64 word = 1; word < words; ++word) ends[word] += ends[word - 1];
    std::vector<i64> first_rows(ends.back());
    group_rank<W>({{marks.data()}, ends.data(), first_rows.data(), words});
    return first_rows;
  }
};

template <class Key>
struct Numbered {
  std::vector<Key> keys;
  std::vector<u64> numbers;
  std::vector<i64> first_rows;

  Numbered(std::mt19937& random, u64 rows, u32 range)
      : keys(contended_keys<Key>(random, rows, range)) {
    std::map<Key, u64> by_key;
    for (u64 row = 0; row < rows; ++row) {
      if (by_key.emplace(keys[row], by_key.size()).second)
        first_rows.push_back(static_cast<i64>(row));
      numbers.push_back(by_key[keys[row]]);
    }
  }
};

template <class Key, int W>
void number(std::mt19937& random, u64 rows, u32 range) {
  const Numbered<Key> expected(random, rows, range);
  const Key* const keys = expected.keys.data();
  const GroupMemory memory(rows / 2, 2, ~0ull);
  std::vector<u64> slots(rows);
  u64 created = 0, refused = 0;
  // Two launches, as Python makes them.
  for (const auto& [first, count] : {std::pair<u64, u64>{0, rows / 3}, {rows / 3, rows - rows / 3}})
    group_place<Key, W>({memory.storage, keys, slots.data(), &created, &refused, first,
                         first + count, 23, (count + 22) / 23});
  CHECK(refused == 0);
  CHECK(created == expected.first_rows.size());
  std::vector<u64> marks;
  CHECK(memory.template rank<W>(marks, rows) == expected.first_rows);
  group_number({memory.storage, {marks.data()}, memory.records});
  group_codes({memory.storage, slots.data(), rows});
  CHECK(slots == expected.numbers);
  std::vector<u64> numbers(rows), counts((rows + 39) / 40);
  group_find<Key, W>(
      {memory.storage, keys, numbers.data(), counts.data(), rows, 40, counts.size()});
  CHECK(numbers == expected.numbers);
  CHECK(counts.back() == (rows - 1) % 40 + 1);
  std::vector<Key> others(rows, 123456);
  others[7] = keys[7];
  group_find<Key, W>(
      {memory.storage, others.data(), numbers.data(), counts.data(), rows, 40, counts.size()});
  CHECK(counts[0] == 1 && counts[1] == 0);
  CHECK(numbers[7] == expected.numbers[7] && numbers[8] == ~0ull);
}

/// Numbers in any order: each key has its own, below the number of keys.
template <class Key, int W>
void enumerate(std::mt19937& random, u64 rows, u32 range) {
  const Numbered<Key> expected(random, rows, range);
  const Key* const keys = expected.keys.data();
  const GroupMemory memory(rows / 2, 2, ~0ull);
  u64 created = 0, refused = 0, numbered = 0;
  group_place<Key, W>(
      {memory.storage, keys, nullptr, &created, &refused, 0, rows, 23, (rows + 22) / 23});
  CHECK(refused == 0 && created == expected.first_rows.size());
  group_enumerate<W>({memory.storage, &numbered, memory.records, 37, (memory.records + 36) / 37});
  CHECK(numbered == created);
  std::vector<u64> numbers(rows), of_key(numbered, ~0ull);
  group_find<Key, W>({memory.storage, keys, numbers.data(), nullptr, rows, 40, (rows + 39) / 40});
  for (u64 row = 0; row < rows; ++row) {
    CHECK(numbers[row] < numbered);
    u64& number = of_key[numbers[row]];
    if (number == ~0ull) number = expected.numbers[row];
    CHECK(number == expected.numbers[row]);
  }
  CHECK(std::count(of_key.begin(), of_key.end(), ~0ull) == 0);
}

/// A table that is too small refuses some rows.
template <int W>
void refuse(std::mt19937& random) {
  const auto keys = contended_keys<u32>(random, 300, 100000);
  const GroupMemory memory(20, 2, 3);
  u64 created = 0, refused = 0;
  std::vector<u64> slots(keys.size());
  group_place<u32, W>({memory.storage, keys.data(), slots.data(), &created, &refused, 0,
                       keys.size(), 50, (keys.size() + 49) / 50});
  CHECK(refused == 1);
  CHECK(created <= 81);
}

/// By one lane alone, which stops where the table has no more room or refuses a key, and goes on in a
/// larger one.
template <class Key, int W>
void number_in_order(std::mt19937& random, u64 rows, u32 range) {
  const Numbered<Key> expected(random, rows, range);
  const u64 groups = expected.first_rows.size();
  std::vector<u64> numbers(rows);
  std::vector<i64> first_rows(groups);
  u64 reached[] = {0, 0};
  const Key* const keys = expected.keys.data();
  const GroupMemory small(2 + groups / 8, 2, ~0ull);
  const u64 most = groups / 2 + 1;
  group_in_order<Key, W>(
      {small.storage, keys, numbers.data(), first_rows.data(), reached, rows, most, 1});
  CHECK(reached[1] == most && first_rows[most - 1] + 1 == static_cast<i64>(reached[0]));
  const GroupMemory large(rows / 2, 2, ~0ull);
  std::vector<Key> distinct;
  for (u64 number = 0; number < most; ++number) distinct.push_back(keys[first_rows[number]]);
  u64 again[] = {0, 0};
  group_in_order<Key, W>({large.storage, distinct.data(), nullptr, nullptr, again, most, ~0ull, 1});
  CHECK(again[0] == most && again[1] == most);
  group_in_order<Key, W>(
      {large.storage, keys, numbers.data(), first_rows.data(), reached, rows, ~0ull, 1});
  CHECK(reached[0] == rows && reached[1] == groups);
  CHECK(numbers == expected.numbers);
  CHECK(first_rows == expected.first_rows);
  std::vector<u64> found(rows), counts(1);
  group_find<Key, W>({large.storage, keys, found.data(), counts.data(), rows, rows, 1});
  CHECK(found == expected.numbers);
  const GroupMemory crowded(1, 2, 1);
  u64 stopped[] = {0, 0};
  group_in_order<Key, W>(
      {crowded.storage, distinct.data(), nullptr, nullptr, stopped, most, ~0ull, 1});
  CHECK(stopped[0] == stopped[1] && (stopped[1] < most || most <= 5));
}

/// Keys and totals in one pass.
template <class Key, int W>
void add(std::mt19937& random, u64 rows, u32 range, bool room, u64 slots = 0, u64 copies = 1) {
  const Numbered<Key> expected(random, rows, range);
  const Key* const keys = expected.keys.data();
  const u64 groups = expected.first_rows.size();
  std::vector<i64> values(rows);
  for (auto& value : values) value = static_cast<i64>(random()) - (1ll << 31);
  const ReduceColumn columns[] = {
      {values.data(), nullptr, Reading::i64, Term::integer, Fold::sum},
      {values.data(), nullptr, Reading::i64, Term::rank, Fold::least},
      {nullptr, nullptr, Reading::u8, Term::one, Fold::sum},
  };
  const GroupMemory memory(room ? 2 * rows : 3, 8, room ? 2 * rows : 3, 3 + (4 << 1));
  u64 refused = 0;
  const GroupBatch batch{memory.storage, columns, 3, keys, nullptr, &refused};
  if (slots != 0) {
    group_add_by_block<Key, W>({batch, rows, 60, slots, copies, (rows + 59) / 60});
  } else {
    group_add<Key, W>({batch, 0, rows / 3, 23, (rows / 3 + 22) / 23});
    group_add<Key, W>({batch, rows / 3, rows, 23, (rows - rows / 3 + 22) / 23});
  }
  CHECK(refused == !room);
  if (!room) return;
  std::vector<u64> marks, totals(3 * groups), wanted(3 * groups);
  const auto first_rows = memory.template rank<W>(marks, rows);
  CHECK(first_rows == expected.first_rows);
  std::vector<Key> distinct(groups);
  group_gather<Key, W>(
      {memory.storage, keys, first_rows.data(), distinct.data(), totals.data(), 3, groups});
  for (u64 group = 0; group < groups; ++group) CHECK(distinct[group] == keys[first_rows[group]]);
  for (u64 group = 0; group < groups; ++group) wanted[groups + group] = ~0ull;
  for (u64 row = 0; row < rows; ++row) {
    const u64 group = expected.numbers[row];
    wanted[group] += static_cast<u64>(values[row]);
    u64& least = wanted[groups + group];
    least = std::min(least, static_cast<u64>(values[row]) ^ 1ull << 63);
    ++wanted[2 * groups + group];
  }
  CHECK(totals == wanted);
}

/// Rows in another order, in which rows of one key are in their own still.
template <int W>
void add_in_order(std::mt19937& random, u64 rows, u32 range) {
  const Numbered<u64> expected(random, rows, range);
  std::vector<i64> order(rows);
  for (u64 row = 0; row < rows; ++row) order[row] = static_cast<i64>(row);
  std::stable_sort(order.begin(), order.end(), [&](i64 left, i64 right) {
    return expected.keys[left] % 8 < expected.keys[right] % 8;
  });
  std::vector<u64> keys(rows), values(rows);
  const u64 groups = expected.first_rows.size();
  std::vector<u64> wanted(2 * groups), totals(2 * groups), distinct(groups), marks;
  for (u64 place = 0; place < rows; ++place) {
    const u64 row = static_cast<u64>(order[place]);
    keys[place] = expected.keys[row];
    values[place] = random();
    wanted[expected.numbers[row]] += values[place];
    u64& last = wanted[groups + expected.numbers[row]];
    last = std::max(last, row + 1);
  }
  const ReduceColumn columns[] = {
      {values.data(), nullptr, Reading::u64, Term::integer, Fold::sum},
      {nullptr, nullptr, Reading::u8, Term::row, Fold::greatest},
  };
  const GroupMemory memory(2 * rows, 4, 2 * rows);
  u64 refused = 0;
  const GroupBatch batch{memory.storage, columns, 2, keys.data(), order.data(), &refused};
  group_add<u64, W>({batch, 0, rows, 64, (rows + 63) / 64});
  CHECK(refused == 0);
  const auto first_rows = memory.template rank<W>(marks, rows);
  CHECK(first_rows == expected.first_rows);
  group_gather<u64, W>({memory.storage, expected.keys.data(), first_rows.data(), distinct.data(),
                        totals.data(), 2, groups});
  CHECK(totals == wanted);
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
  ask(values.data(), Reading::i64, Term::square, Fold::sum);
  for (u64 i = 0; i < columns.size(); ++i) columns[i].totals = totals[i].data();
  const ReduceBatch batch{codes.data(), nullptr, columns.data(), columns.size(), alone, W == 8};
  group_reduce<W>({batch, nullptr, rows, segment_rows, groups, copies, segments});
  for (u64 group = 0; group < groups; ++group) {
    u64 sum = 0, least = ~0ull, last = 0, count = 0, squares = 0;
    double real = 0;
    for (u64 row = 0; row < rows; ++row) {
      if (codes[row] != static_cast<i64>(group)) continue;
      ++count;
      sum += static_cast<u64>(values[row]);
      squares += static_cast<u64>(values[row]) * static_cast<u64>(values[row]);
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
    CHECK(total(5, Fold::sum) == squares);
  }
}

/// Ones that would be lost beside a large number, and what is infinite.
template <int W>
void compensate(u64 rows, u64 copies, bool alone = true) {
  const u64 segments = alone ? copies : 7;
  std::vector<i64> codes(rows);
  std::vector<double> reals(rows, 1.0), totals(2 * 2 * copies);
  for (u64 row = 0; row < rows; ++row) codes[row] = static_cast<i64>(row % 2);
  for (u64 row = 2; row < 6; ++row) reals[row] = __builtin_nan("");
  reals[0] = 0x1p60;
  reals[1] = __builtin_inf();
  const ReduceColumn column{reals.data(), reinterpret_cast<u64*>(totals.data()), Reading::f64,
                            Term::real, Fold::compensated};
  const ReduceBatch batch{codes.data(), nullptr, &column, 1, alone, 0};
  const u64 segment_rows = (rows + segments - 1) / segments;
  group_reduce<W>({batch, nullptr, rows, segment_rows, 2, copies, segments});
  double sum = -0x1p60, excess = 0, others = 0;
  for (u64 copy = 0; copy < copies; ++copy) {
    sum += totals[4 * copy];
    excess += totals[4 * copy + 1];
    others += totals[4 * copy + 2];
  }
  CHECK(sum - excess == static_cast<double>(rows / 2 - 3));
  CHECK(others == __builtin_inf());
}

/// The same in records of totals, where the second word of a sum stands for a column of its own.
template <int W>
void add_compensated_rows(u64 rows) {
  std::vector<u64> keys(rows), totals(3 * 2), distinct(2), marks;
  std::vector<double> reals(rows, 1.0);
  for (u64 row = 0; row < rows; ++row) keys[row] = 40 + row % 2;
  for (u64 row = 2; row < 6; ++row) reals[row] = __builtin_nan("");
  reals[0] = 0x1p60;
  reals[1] = __builtin_inf();
  const ReduceColumn columns[] = {
      {reals.data(), nullptr, Reading::f64, Term::real, Fold::compensated},
      {nullptr, nullptr, Reading::u8, Term::one, Fold::excess},
      {nullptr, nullptr, Reading::u8, Term::one, Fold::sum},
  };
  const GroupMemory memory(64, 8, 64);
  u64 refused = 0;
  const GroupBatch batch{memory.storage, columns, 3, keys.data(), nullptr, &refused};
  group_add<u64, W>({batch, 0, rows, 64, (rows + 63) / 64});
  CHECK(refused == 0);
  const auto first_rows = memory.template rank<W>(marks, rows);
  group_gather<u64, W>(
      {memory.storage, keys.data(), first_rows.data(), distinct.data(), totals.data(), 3, 2});
  CHECK(real_of(totals[0]) - 0x1p60 - real_of(totals[2]) == static_cast<double>(rows / 2 - 3));
  CHECK(real_of(totals[1]) == __builtin_inf());
  CHECK(totals[4] == rows / 2);
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
  std::vector<i64> sizes(left_rows + 1);
  join_sizes({keys.data(), starts.data(), starts.data() + 1, sizes.data(), 1, left_rows + 1});
  for (u64 row = 1; row <= left_rows; ++row) sizes[row] += sizes[row - 1];
  CHECK(sizes == offsets);
  std::vector<i64> found_left(left.size(), -9), found_right(left.size(), -9);
  const JoinSides sides{offsets.data(), keys.data(), starts.data(), right_rows.data(), left_rows};
  join_pairs<W>(
      {sides, found_left.data(), found_right.data(), left.size(), 50, (left.size() + 49) / 50});
  CHECK(found_left == left);
  CHECK(found_right == right);
}

/// Where the rows of each code stand in their stable order; some have none, and -1 comes last.
inline void bound(std::mt19937& random, u64 rows, i64 groups) {
  std::vector<i64> codes(rows), order(rows), starts(groups), ends(groups);
  for (u64 row = 0; row < rows; ++row) {
    codes[row] = static_cast<i64>(random() % static_cast<u64>(groups + 1)) - 1;
    order[row] = static_cast<i64>(row);
  }
  const auto word = [&](i64 row) { return static_cast<u64>(codes[row]); };
  std::stable_sort(order.begin(), order.end(),
                   [&](i64 one, i64 other) { return word(one) < word(other); });
  join_bounds({codes.data(), order.data(), starts.data(), ends.data(), rows});
  for (i64 code = 0; code < groups; ++code) {
    CHECK(ends[code] - starts[code] == std::count(codes.begin(), codes.end(), code));
    for (i64 place = starts[code]; place < ends[code]; ++place) CHECK(codes[order[place]] == code);
  }
}

/// Rows with and without a partner, in order.
template <int W>
void select(std::mt19937& random, u64 rows, u32 share) {
  std::vector<i64> partner(rows), ends, left, right, alone;
  for (u64 row = 0; row < rows; ++row) {
    partner[row] = random() % share ? -1 : static_cast<i64>(random() % 1000);
    (partner[row] < 0 ? alone : left).push_back(static_cast<i64>(row));
    if (partner[row] >= 0) right.push_back(partner[row]);
    if (row % 50 == 49 || row + 1 == rows) ends.push_back(static_cast<i64>(left.size()));
  }
  std::vector<i64> found_left(left.size()), found_right(right.size()), found_alone(alone.size());
  join_select<W>({partner.data(), ends.data(), found_left.data(), found_right.data(), 0, rows, 50,
                  ends.size()});
  CHECK(found_left == left);
  CHECK(found_right == right);
  join_select<W>(
      {partner.data(), ends.data(), found_alone.data(), nullptr, 1, rows, 50, ends.size()});
  CHECK(found_alone == alone);
}

/// Rows by what was found for them, and how many.
template <class Word, int W>
void found(std::mt19937& random, u64 rows, u32 share) {
  alignas(8) u8 marks[256];
  std::vector<Word> words(rows), chosen_words;
  std::vector<i64> chosen, ends;
  std::vector<u64> counts((rows + 47) / 48), expected(counts.size());
  for (u64 row = 0; row < rows; ++row) {
    marks[row] = random() % share == 0;
    words[row] = static_cast<Word>(random());
    expected[row / 48] += marks[row];
    if (marks[row]) chosen.push_back(static_cast<i64>(row)), chosen_words.push_back(words[row]);
    if (row % 48 == 47 || row + 1 == rows) ends.push_back(static_cast<i64>(chosen.size()));
  }
  found_count<W>({marks, counts.data(), rows, 48, counts.size()});
  CHECK(counts == expected);
  std::vector<i64> rows_to(chosen.size());
  std::vector<Word> words_to(chosen.size());
  found_select<Word, W>(
      {marks, words.data(), ends.data(), rows_to.data(), words_to.data(), rows, 48, ends.size()});
  CHECK(rows_to == chosen);
  CHECK(words_to == chosen_words);
}

/// The list of pairs has each key's count, whether a block had room for it or not.
template <class Key, class Count, int Threads>
void count_rows(std::mt19937& random, u64 rows, u32 range, u64 quarters, bool given) {
  auto keys = contended_keys<Key>(random, rows, static_cast<Key>(range));
  // All lanes of some tiles have one key.
  for (u64 row = 64; row < rows / 2 && row < 192; ++row) keys[row] = row < 128 ? 7 : ~Key{0};
  std::vector<Count> counts(rows);
  std::map<Key, Count> expected, listed;
  for (u64 row = 0; row < rows; ++row) {
    counts[row] = given ? static_cast<Count>(random() % 5) : Count{3};
    expected[keys[row]] += counts[row];
  }
  std::vector<Key> keys_to(rows);
  std::vector<Count> counts_to(rows);
  u64 pairs = 0;
  const u64 segment = 130;
  count_by_block<Key, Count, Threads>(
      {{keys.data(), given ? counts.data() : nullptr, keys_to.data(), counts_to.data(), &pairs, 3,
        quarters, rows, segment, (rows + segment - 1) / segment}});
  CHECK(pairs >= expected.size() && pairs <= rows);
  for (u64 pair = 0; pair < pairs; ++pair) listed[keys_to[pair]] += counts_to[pair];
  CHECK(listed == expected);
  // A block with room for all lists each key once.
  if (range < quarters) CHECK(pairs <= (rows + segment - 1) / segment * expected.size());
}

template <class Key, class Count, int Threads>
void count_rows_of(std::mt19937& random) {
  for (const bool given : {false, true}) {
    count_rows<Key, Count, Threads>(random, 500, 40, 90, given);
    count_rows<Key, Count, Threads>(random, 300, 90, 7, given);
    count_rows<Key, Count, Threads>(random, 9, 5, 1, given);
  }
}

template <int Threads>
void count_rows_by(u32 blocks) {
  std::mt19937 random(Threads);
  lockstep::tiles = blocks;
  count_rows_of<u32, u32, Threads>(random);
  count_rows_of<u32, u64, Threads>(random);
  count_rows_of<u64, u64, Threads>(random);
}

}  // namespace
}  // namespace dg::test

int main() {
  dg::test::for_each_width([]<int W>() {
    using namespace dg::test;
    std::mt19937 random(W);
    number<dg::u32, W>(random, 120, 7);
    number<dg::u64, W>(random, 150, 200);
    enumerate<dg::u32, W>(random, 120, 7);
    enumerate<dg::u64, W>(random, 150, 200);
    number_in_order<dg::u32, W>(random, 120, 7);
    number_in_order<dg::u64, W>(random, 150, 200);
    refuse<W>(random);
    add<dg::u32, W>(random, 130, 7, true);
    add<dg::u64, W>(random, 170, 200, true);
    add<dg::u64, W>(random, 100, 1000, false);
    add<dg::u32, W>(random, 130, 7, true, 16);
    add<dg::u64, W>(random, 250, 100, true, 16, 4);
    add_in_order<W>(random, 200, 50);
    add<dg::u64, W>(random, 100, 1000, false, 16);
    select<W>(random, 230, 2);
    select<W>(random, 99, 50);
    found<dg::u32, W>(random, 230, 2);
    found<dg::u64, W>(random, 99, 50);
    reduce<W>(random, 200, 1, 7, true);
    reduce<W>(random, 300, 20, 7, true);
    reduce<W>(random, 300, 5, 1, false);
    reduce<W>(random, 100, 90, 1, false);
    bound(random, 200, 30);
    bound(random, 40, 300);
    bound(random, 60, 1);
    pair<W>(random, 300, 20, 2);
    pair<W>(random, 20, 5, 60);
    pair<W>(random, 1, 1, 200);
  });
  dg::test::count_rows_by<1>(3);
  dg::test::count_rows_by<4>(3);
  dg::test::count_rows_by<16>(2);
  dg::test::compensate<1>(300, 1);
  dg::test::compensate<1>(900, 5);
  dg::test::compensate<4>(300, 3);
  dg::test::compensate<4>(900, 1, false);
  dg::test::compensate<8>(300, 1, false);
  dg::test::add_compensated_rows<4>(300);
  dg::test::add_compensated_rows<16>(200);
  std::printf("groups: passed\n");
}

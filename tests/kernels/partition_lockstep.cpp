/// Partition by blocks of several tiles, against std::stable_sort, where rows of a part stay in order and
/// where they do not.
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

template <class Key, class Value, u32 Threads>
void partition(const Case& wanted, const std::vector<Key>& keys) {
  using Word = typename StoredAs<Value>::Type;
  constexpr bool has_value = !same<Value, void>;
  using Step = PartStep<lockstep::LockstepBlock<Threads>, Key, Word, Within::order>;
  u64 step_rows = 100;
  if constexpr (Threads != 1) step_rows = Step::rows;
  const u64 segments = (wanted.rows + 2 * step_rows - 1) / (2 * step_rows);
  std::vector<u64> counters(segments * wanted.parts, ~0ull);
  std::vector<Word> values(wanted.rows), values_to(wanted.rows);
  if constexpr (has_value)
    for (u64 row = 0; row < wanted.rows; ++row) values[row] = static_cast<Word>(row * 7 + 1);
  std::vector<Key> keys_to(wanted.rows);
  std::vector<i64> numbers(wanted.rows, -1), expected(wanted.rows);
  const PartitionArgs args{wanted.digit,
                           Route{},
                           keys.data(),
                           values.data(),
                           keys_to.data(),
                           values_to.data(),
                           numbers.data(),
                           nullptr,
                           nullptr,
                           counters.data(),
                           nullptr,
                           wanted.rows,
                           ~0ull,
                           wanted.parts,
                           1,
                           1,
                           0,
                           0,
                           segments,
                           step_rows,
                           2 * step_rows,
                           segments};
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

/// By two digits of the hash, the high one first: rows of a part come in any order.
template <class Key, class Value, u32 Threads>
void strew(u64 rows, u32 high, u32 low, const std::vector<Key>& keys) {
  using Word = typename StoredAs<Value>::Type;
  using Step = PartStep<lockstep::LockstepBlock<Threads>, Key, Word, Within::any_order>;
  u64 step_rows = 50;
  if constexpr (Threads != 1) step_rows = Step::rows;
  const u64 spread = u64{high} * low;
  std::vector<Key> from = keys, to(rows);
  std::vector<Word> values(rows), values_to(rows);
  const auto value_for = [](Key key) {
    if constexpr (same<Value, void>)
      return NoValue{};
    else
      return static_cast<Word>(key * 7 + 1);
  };
  for (u64 row = 0; row < rows; ++row) values[row] = value_for(keys[row]);
  std::vector<u64> bounds{0, rows};
  for (const Digit& digit :
       {Digit{5, spread, lowest_one(low), ~0u}, Digit{5, spread, 0, low - 1}}) {
    const u64 groups = bounds.size() - 1, parts = groups == 1 ? high : low, pieces = 3;
    std::vector<u64> counters(groups * parts * pieces, ~0ull);
    const PartitionArgs args{digit,
                             Route{},
                             from.data(),
                             values.data(),
                             to.data(),
                             values_to.data(),
                             nullptr,
                             nullptr,
                             nullptr,
                             counters.data(),
                             bounds.data(),
                             rows,
                             ~0ull,
                             parts,
                             1,
                             groups,
                             0,
                             0,
                             pieces,
                             step_rows,
                             step_rows,
                             groups * pieces};
    partition_count<Key, Threads>({args});
    CHECK(sum_up(counters) == rows);
    std::vector<u64> starts;
    for (u64 part = 0; part < groups * parts; ++part) starts.push_back(counters[part * pieces]);
    starts.push_back(rows);
    partition_strew<Key, Value, Threads>({args});
    bounds.swap(starts);
    from.swap(to);
    values.swap(values_to);
  }
  const Digit whole{5, spread, 0, ~0u};
  for (u64 part = 0; part < spread; ++part)
    for (u64 row = bounds[part]; row < bounds[part + 1]; ++row) CHECK(whole.of(from[row]) == part);
  if constexpr (!same<Value, void>)
    for (u64 row = 0; row < rows; ++row) CHECK(values[row] == value_for(from[row]));
  std::vector<Key> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  std::sort(from.begin(), from.end());
  CHECK(from == sorted);
}

/// Batches of several senders, first by owner and range of digits, then those of one owner by digit.
template <class Key, class Value, u32 Threads>
void route(u32 owners, u32 digits, u32 each, const std::vector<std::vector<Key>>& batches) {
  using Word = typename StoredAs<Value>::Type;
  using Step = PartStep<lockstep::LockstepBlock<Threads>, Key, Word, Within::any_order>;
  u64 step_rows = 50;
  if constexpr (Threads != 1) step_rows = Step::rows;
  const u64 shares = batches.size(), pieces = 2;
  const u32 ranges = (digits + each - 1) / each;
  const Digit whole{5, u64{digits} * 8, 3, ~0u};
  const Route by_owner{owners, 9, ranges, ((u64{1} << 32) + each - 1) / each};
  const auto value_for = [](Key key) { return static_cast<Word>(key * 7 + 1); };
  std::vector<Key> came, to;
  std::vector<Word> values_came, values_to;
  std::vector<u64> bounds{0};
  const u32 owner = owners - 1, first = ranges / 3, some = ranges - first;
  u64 wanted = 0;
  for (const auto& keys : batches) {
    const u64 rows = keys.size();
    std::vector<Word> values(rows);
    for (u64 row = 0; row < rows; ++row) {
      values[row] = value_for(keys[row]);
      wanted += owner_of_hash(hash_key(keys[row], 9), owners) == owner &&
                whole.of(keys[row]) / each >= first;
    }
    to.assign(rows, 0);
    values_to.assign(rows, 0);
    std::vector<u64> counters(owners * ranges * pieces, ~0ull);
    counters.reserve(counters.size() + 1);
    const PartitionArgs args{whole,       by_owner,
                             keys.data(), values.data(),
                             to.data(),   values_to.data(),
                             nullptr,     nullptr,
                             nullptr,     counters.data(),
                             nullptr,     rows,
                             ~0ull,       owners * ranges,
                             1,           1,
                             0,           0,
                             pieces,      step_rows,
                             step_rows,   pieces};
    partition_count<Key, Threads>({args});
    CHECK(sum_up(counters) == rows);
    counters.push_back(rows);
    partition_strew<Key, Value, Threads>({args});
    for (u32 range = first; range < ranges; ++range) {
      const u64 part = u64{owner} * ranges + range;
      const u64 begin = counters[part * pieces], end = counters[(part + 1) * pieces];
      came.insert(came.end(), to.begin() + static_cast<i64>(begin),
                  to.begin() + static_cast<i64>(end));
      values_came.insert(values_came.end(), values_to.begin() + static_cast<i64>(begin),
                         values_to.begin() + static_cast<i64>(end));
      bounds.push_back(came.size());
    }
  }
  const u64 rows = came.size();
  CHECK(rows == wanted);
  to.assign(rows, 0);
  values_to.assign(rows, 0);
  std::vector<u64> counters(some * each * shares * pieces, ~0ull);
  counters.reserve(counters.size() + 1);
  // The last share stands elsewhere.
  const u64 split = bounds[(shares - 1) * some];
  std::vector<Key> more(came.begin() + static_cast<i64>(split), came.end());
  std::vector<Word> more_values(values_came.begin() + static_cast<i64>(split), values_came.end());
  // Memory, also of no rows.
  more.reserve(1);
  more_values.reserve(1);
  std::fill(came.begin() + static_cast<i64>(split), came.end(), static_cast<Key>(~Key{0}));
  std::fill(values_came.begin() + static_cast<i64>(split), values_came.end(), Word{});
  const PartitionArgs args{whole,
                           Route{},
                           came.data(),
                           values_came.data(),
                           to.data(),
                           values_to.data(),
                           nullptr,
                           more.data(),
                           more_values.data(),
                           counters.data(),
                           bounds.data(),
                           rows,
                           split,
                           each,
                           shares,
                           some,
                           u64{first} * each,
                           each,
                           pieces,
                           step_rows,
                           step_rows,
                           some * shares * pieces};
  partition_count<Key, Threads>({args});
  CHECK(sum_up(counters) == rows);
  counters.push_back(rows);
  partition_strew<Key, Value, Threads>({args});
  for (u64 part = 0; part < u64{some} * each; ++part)
    for (u64 row = counters[part * shares * pieces]; row < counters[(part + 1) * shares * pieces];
         ++row) {
      CHECK(whole.of(to[row]) == first * each + part);
      CHECK(values_to[row] == value_for(to[row]));
    }
}

/// Keys that are their parts, for two segments. The last step of the first one finds a granule but for one
/// row held of every part, and leaves one row over a granule of as many parts as it can.
template <class Step>
std::vector<std::vector<u32>> crowd() {
  constexpr u32 granule = Step::granule;
  std::vector<u32> first, second;
  for (u32 part = 0; part < Step::parts; ++part) first.insert(first.end(), granule - 1, part);
  for (u32 part = 0; first.size() % Step::rows != 0; ++part)
    first.insert(first.end(), granule, part % Step::parts);
  u32 left = Step::rows, two = left / 2 < Step::parts ? left / 2 : Step::parts;
  for (u32 part = 0; part < Step::parts; ++part) {
    if (part < two) first.insert(first.end(), 2, part);
    second.insert(second.end(), part < two ? granule - 1 : 1, part);
  }
  left -= 2 * two;
  for (u32 part = 0; left > 0; left -= granule, ++part)
    first.insert(first.end(), granule, part % Step::parts);
  return {first, second};
}

template <class Key, class Value, u32 Threads, Within within>
void partition_crowd() {
  using Word = typename StoredAs<Value>::Type;
  using Step = PartStep<lockstep::LockstepBlock<Threads>, Key, Word, within>;
  const auto segments = crowd<Step>();
  std::vector<Key> keys;
  for (const auto& segment : segments) keys.insert(keys.end(), segment.begin(), segment.end());
  const u64 rows = keys.size(), pieces = segments.size(), segment_rows = segments[0].size();
  CHECK(segments[1].size() <= segment_rows);
  std::vector<Word> values(rows), values_to(rows);
  if constexpr (!same<Value, void>)
    for (u64 row = 0; row < rows; ++row) values[row] = static_cast<Word>(keys[row] * 7 + 1);
  std::vector<Key> keys_to(rows, ~Key{0});
  std::vector<i64> numbers(rows, -1);
  std::vector<u64> counters(pieces * Step::parts, ~0ull);
  const PartitionArgs args{{0, 0, 0, ~0u},
                           Route{},
                           keys.data(),
                           values.data(),
                           keys_to.data(),
                           values_to.data(),
                           within == Within::order ? numbers.data() : nullptr,
                           nullptr,
                           nullptr,
                           counters.data(),
                           nullptr,
                           rows,
                           ~0ull,
                           Step::parts,
                           1,
                           1,
                           0,
                           0,
                           pieces,
                           segment_rows,
                           segment_rows,
                           pieces};
  partition_count<Key, Threads>({args});
  CHECK(sum_up(counters) == rows);
  if constexpr (within == Within::order)
    partition_scatter<Key, Value, Threads>({args});
  else
    partition_strew<Key, Value, Threads>({args});
  if constexpr (!same<Value, void>)
    for (u64 row = 0; row < rows; ++row)
      CHECK(values_to[row] == static_cast<Word>(keys_to[row] * 7 + 1));
  if constexpr (within == Within::order)
    for (u64 row = 0; row < rows; ++row)
      CHECK(keys[static_cast<u64>(numbers[row])] == keys_to[row]);
  std::sort(keys.begin(), keys.end());
  CHECK(keys_to == keys);
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
  strew<Key, Value, Threads>(2000, 5, 4, keys(2000, ~Key{0}));
  strew<Key, Value, Threads>(1200, 300, 2, keys(1200, 5000));
  strew<Key, Value, Threads>(700, 3, 8, keys(700, 2));
  if constexpr (!same<Value, void>) {
    route<Key, Value, Threads>(3, 10, 4, {keys(500, ~Key{0}), keys(300, 40), keys(0, 1)});
    route<Key, Value, Threads>(1, 60, 7, {keys(400, ~Key{0}), keys(100, ~Key{0})});
  }
  if constexpr (Threads != 1) {
    partition_crowd<Key, Value, Threads, Within::order>();
    partition_crowd<Key, Value, Threads, Within::any_order>();
  }
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

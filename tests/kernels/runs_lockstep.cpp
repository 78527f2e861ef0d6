/// Runs of equal keys, and rows of one owner put in order, by tiles of every width.
#include <algorithm>

#include "lockstep_case.h"

namespace dg::test {
namespace {

/// Runs of equal keys in segments that cut through them.
template <class Key, int W>
void runs() {
  std::mt19937 random(W);
  std::vector<Key> keys, expected_keys;
  std::vector<i64> expected;
  for (Key key = 1; keys.size() < 300; key += 1 + random() % 3) {
    expected.push_back(static_cast<i64>(keys.size()));
    expected_keys.push_back(key);
    for (u64 i = random() % 4 ? 1 : random() % 90; i-- > 0 || keys.empty();) keys.push_back(key);
    if (static_cast<i64>(keys.size()) == expected.back())
      expected.pop_back(), expected_keys.pop_back();
  }
  const u64 rows = keys.size();
  // Segments that cut through 16 bytes, and such that do not; one owner of all keys.
  for (const u64 segment : {41, 64}) {
    const u64 n = (rows + segment - 1) / segment;
    for (const u64 spread : {0, 1}) {
      std::vector<i64> mixed_rows(rows), wanted;
      for (u64 run = 1; spread && run < expected.size(); ++run) wanted.push_back(expected[run]);
      std::vector<u64> counts(n), places(n);
      u64 mixed = 0;
      run_count<Key, W>({{7, spread},
                         keys.data(),
                         counts.data(),
                         &mixed,
                         mixed_rows.data(),
                         rows,
                         rows,
                         segment,
                         n});
      mixed_rows.resize(mixed);
      std::sort(mixed_rows.begin(), mixed_rows.end());
      CHECK(std::includes(wanted.begin(), wanted.end(), mixed_rows.begin(), mixed_rows.end()));
      CHECK(mixed <= n && (wanted.empty() || mixed_rows.at(0) == wanted[0]));
      u64 total = 0;
      for (u64 i = 0; i < n; ++i) {
        places[i] = total;
        total += counts[i];
      }
      CHECK(total == expected.size());
      std::vector<i64> starts(total);
      std::vector<Key> run_keys(total);
      run_write<Key, W>(
          {keys.data(), places.data(), starts.data(), run_keys.data(), rows, segment, n});
      CHECK(starts == expected && run_keys == expected_keys);
    }
  }
}

/// Batches in the order of a few owners, whose keys stand in any order, or each 70 times in a row.
template <class Key, int W>
void mends() {
  std::mt19937 random(W);
  const RunOrder order{3, 12};
  for (const u64 rows : {2, 40, 260, 700}) {
    std::vector<Key> keys;
    for (u64 i = 0; i < rows; ++i) {
      const Key some = random() % 4 ? static_cast<Key>(random() % 40) : 7;
      keys.push_back(rows == 700 ? static_cast<Key>(i / 70 % 5) : some);
    }
    keys[0] = Mark<Key>::empty;
    std::stable_sort(keys.begin(), keys.end(),
                     [&](Key a, Key b) { return order.owner(a) < order.owner(b); });
    std::vector<Key> values;
    std::map<Key, std::vector<Key>> model;
    for (u64 row = 0; row < rows; ++row) {
      values.push_back(static_cast<Key>(row));
      model[keys[row]].push_back(static_cast<Key>(row));
    }
    const u64 segment = 64, segments = (rows + segment - 1) / segment;
    std::vector<u64> counts(segments), counted(segments);
    u64 mixed = 0, many = 0, none = 0;
    std::vector<i64> mixed_rows(rows), firsts(rows), lengths(rows);
    run_count<Key, W>({order, keys.data(), counts.data(), &mixed, mixed_rows.data(), rows, rows,
                       segment, segments});
    run_mixed<Key, W>({order, keys.data(), &mixed, mixed_rows.data(), firsts.data(), lengths.data(),
                       &many, rows, rows, rows});
    CHECK(many == 0);
    u64 told = 0;
    for (u64 i = 0; i < mixed; ++i) {
      told += static_cast<u64>(lengths[i]);
      for (u64 j = 0; j < i; ++j) CHECK(!lengths[i] || !lengths[j] || firsts[i] != firsts[j]);
    }
    CHECK(told <= rows && (told > 0) == (mixed > 0));
    std::vector<Key> scratch_keys(rows), scratch_values(rows);
    run_mend<Key, Key, W>({order, keys.data(), values.data(), counts.data(), &mixed, firsts.data(),
                           lengths.data(), scratch_keys.data(), scratch_values.data(), rows,
                           segment, rows});
    run_count<Key, W>(
        {{order.seed, 0}, keys.data(), counted.data(), &none, nullptr, 0, rows, segment, segments});
    CHECK(counts == counted);
    u64 row = 0;
    while (row < rows) {
      const Key key = keys[row];
      for (const Key value : model.at(key)) {
        CHECK(keys[row] == key && values[row] == value);
        ++row;
      }
      model.erase(key);
    }
    for (row = 1; row < rows; ++row)
      CHECK(hash_key(keys[row - 1], order.seed) <= hash_key(keys[row], order.seed));
  }
}

/// Parts of few rows and of none, grouped in blocks. Where few bits of the hash put them in order, keys
/// stand mixed; a part may have too many such rows, or too many at all.
template <class Key, class Value, u32 Threads>
void groups(std::mt19937& random) {
  struct Case {
    u64 rows;
    Key range;
    u64 parts;
    u64 within;
    bool fits;
  };
  for (const Case& wanted : {Case{1, 1, 1, 0xffff, true}, Case{400, 30, 5, 0xffff, true},
                             Case{300, ~Key{0}, 2, 0xffff, true}, Case{250, 9, 2, 0x0200, true},
                             Case{200, 4, 3, 0, true}, Case{700, 90, 1, 0, false},
                             Case{kPartRows + 1, 4, 1, 0xffff, false}}) {
    const RunOrder order{11, wanted.parts << 16};
    std::vector<Key> keys(wanted.rows);
    for (auto& key : keys) key = static_cast<Key>(random()) % wanted.range;
    keys[0] = Mark<Key>::empty;
    const auto part_of = [&](Key key) { return order.owner(key) >> 16; };
    std::stable_sort(keys.begin(), keys.end(),
                     [&](Key a, Key b) { return part_of(a) < part_of(b); });
    std::vector<Value> values(wanted.rows), values_to(wanted.rows);
    std::map<Key, std::vector<Value>> model;
    std::vector<u64> bounds(wanted.parts + 1), places(wanted.parts + 1);
    for (u64 row = 0; row < wanted.rows; ++row) {
      values[row] = static_cast<Value>(3 * row);
      model[keys[row]].push_back(values[row]);
      ++bounds[part_of(keys[row]) + 1];
    }
    for (u64 part = 0; part < wanted.parts; ++part) bounds[part + 1] += bounds[part];
    std::vector<Key> firsts = keys, run_keys(wanted.rows);
    part_runs<Key, Value, Threads>(
        {{order, firsts.data(), values.data(), bounds.data(), run_keys.data(), values_to.data(),
          places.data() + 1, wanted.within, 1, wanted.parts}});
    for (u64 part = 0; part < wanted.parts; ++part) places[part + 1] += places[part];
    CHECK((places.back() >= kNoRoom) != wanted.fits);
    if (!wanted.fits) continue;
    CHECK(places.back() == model.size());
    std::vector<i64> starts(model.size() + 1);
    std::vector<Key> packed(model.size());
    run_pack<Key, 4>({firsts.data(), run_keys.data(), bounds.data(), places.data(), starts.data(),
                      packed.data(), 1, wanted.parts});
    for (u64 run = 0; run < model.size(); ++run) {
      CHECK(std::vector<Value>(values_to.begin() + starts[run],
                               values_to.begin() + starts[run + 1]) == model.at(packed[run]));
      const auto bits = [&](Key key) { return order.owner(key) & (wanted.within | ~0xffffu); };
      if (run == 0) continue;
      const Key key = packed[run], before = packed[run - 1];
      CHECK(bits(before) <= bits(key));
      if (bits(before) == bits(key))
        CHECK(hash_key(before, order.seed) < hash_key(key, order.seed));
    }
  }
}

template <class Key>
void all_widths(const char* name) {
  for_each_width([]<int W>() {
    runs<Key, W>();
    mends<Key, W>();
  });
  std::printf("runs %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::all_widths<u32>("u32");
  test::all_widths<u64>("u64");
  const auto run = []<class Key, class Value, u32 Threads>(std::mt19937& random) {
    if constexpr (!same<Value, void>) test::groups<Key, Value, Threads>(random);
  };
  test::for_each_layout<1>(3, run);
  test::for_each_layout<2>(2, run);
  test::for_each_layout<8>(2, run);
  test::for_each_layout<16>(2, run);
  std::printf("runs of parts: passed\n");
}

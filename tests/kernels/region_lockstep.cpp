/// Batches by region in blocks of several tiles, and which rows created keys, against a dictionary.
#include <algorithm>

#include "lockstep_case.h"

namespace dg::test {
namespace {

template <class Value>
using Stored = typename StoredAs<Value>::Type;

/// Keys that begin at few buckets, so that these overflow and lanes meet, and keys anywhere.
template <class Key, class Value>
std::vector<Key> crowded_keys(const TableMemory<Key, Value>& table, std::mt19937& random,
                              u64 rows) {
  const OpenTable<Key, Value> view{table.storage};
  std::vector<Key> keys = contended_keys<Key>(random, rows / 2, rows / 4);
  while (keys.size() < rows) {
    const Key key = static_cast<Key>(random()) % 200000;
    if (view.first_bucket(key) % kRegionBuckets < 4) keys.push_back(key);
  }
  std::shuffle(keys.begin(), keys.end(), random);
  return keys;
}

template <class Key, class Value, u32 Threads>
void insert(TableMemory<Key, Value>& table, std::map<Key, u64>& model, const std::vector<Key>& keys,
            bool blank) {
  const OpenTable<Key, Value> view{table.storage};
  const u64 rows = keys.size(), buckets = table.buckets.size();
  const auto value_for = [&](u64 row) {
    if constexpr (same<Value, void>)
      return NoValue{};
    else
      return static_cast<Stored<Value>>(model.size() << 20 | row);
  };
  std::vector<Stored<Value>> values(rows), ordered_values(rows), left_values(rows);
  std::vector<u64> order(rows);
  for (u64 row = 0; row < rows; ++row) {
    values[row] = value_for(row);
    order[row] = row;
  }
  const auto part = [&](u64 row) { return view.first_bucket(keys[row]) >> kRegionShift; };
  std::stable_sort(order.begin(), order.end(), [&](u64 a, u64 b) { return part(a) < part(b); });
  std::vector<Key> ordered(rows), left_keys(rows);
  for (u64 place = 0; place < rows; ++place) {
    ordered[place] = keys[order[place]];
    ordered_values[place] = values[order[place]];
  }
  const u64 parts = ((buckets - 1) >> kRegionShift) + 1;
  std::vector<u64> starts(parts + 1);
  for (u64 each = 0; each <= parts; ++each)
    starts[each] = static_cast<u64>(
        std::count_if(order.begin(), order.end(), [&](u64 row) { return part(row) < each; }));

  std::vector<u32> created(buckets * Slot<Key, Value>::per_bucket / 32 + 1, ~0u);
  created.back() = 0;
  table.state.pending = 0;
  const u64 occupied = table.state.occupied;
  region_insert<Key, Value, Threads>(
      {{table.storage, ordered.data(), ordered_values.data(), starts.data(), left_keys.data(),
        left_values.data(), created.data(), blank, 0, 0, kRegionBuckets,
        ((buckets - 1) >> kRegionShift) + 1}});
  const u64 left = table.state.pending;
  CHECK(left > 0 && left < rows);
  std::vector<u8> fresh(rows, 0);
  open_insert<Key, Value, 1>(
      {table.storage, left_keys.data(), left_values.data(), fresh.data(), nullptr, left, ~0ull, 0});
  region_claim<Key, Value, 1>(
      {table.storage, created.data(), left_keys.data(), left_values.data(), fresh.data(), 1, left});
  std::fill(fresh.begin(), fresh.end(), 0);
  region_claim<Key, Value, 4>(
      {table.storage, created.data(), keys.data(), values.data(), fresh.data(), 0, rows});
  CHECK(std::all_of(created.begin(), created.end(), [](u32 word) { return word == 0; }));

  std::map<Key, u32> count;
  std::vector<u8> found(rows);
  std::vector<Stored<Value>> stored(rows);
  open_find<Key, Value, 4>({table.storage, keys.data(), stored.data(), found.data(), rows, 77});
  for (u64 row = 0; row < rows; ++row) {
    CHECK(found[row] == 1);
    count[keys[row]] += fresh[row];
    if constexpr (!same<Value, void>)
      if (fresh[row]) CHECK(stored[row] == values[row]);
  }
  for (const auto& [key, times] : count) CHECK(times == !model.count(key));
  for (const Key key : keys) model.emplace(key, 0);
  CHECK(table.state.occupied == model.size() && table.state.occupied > occupied);
}

template <class Key, class Value, u32 Threads>
void cases(std::mt19937& random) {
  // Segments smaller than a region, as large, and larger; the last region is not a whole one.
  for (const u64 shift : {u64{6}, u64{kRegionShift}, u64{kRegionShift + 1}}) {
    TableMemory<Key, Value> table((2 << (kRegionShift + 1 - shift)) + (shift < kRegionShift),
                                  shift);
    std::map<Key, u64> model;
    // What a blank table's memory holds does not matter.
    for (auto& bucket : table.buckets) bucket.word[3] = random();
    std::fill(table.overflow.begin(), table.overflow.end(), 5);
    insert<Key, Value, Threads>(table, model, crowded_keys(table, random, 700), true);
    insert<Key, Value, Threads>(table, model, crowded_keys(table, random, 400), false);
  }
}

/// The distinct keys of one range of hashes, however often they come.
template <class Key, int W>
void sample(std::mt19937& random) {
  TableMemory<Key, void> table(16, 3);
  const auto keys = contended_keys<Key>(random, 1001, 300);
  std::map<Key, u64> model;
  for (const Key key : keys)
    if (hash_key(key, 9) >> 62 == 0) ++model[key];
  open_sample<Key, W>({table.storage, keys.data(), 9, 2, 1000, keys.size(), 251});
  CHECK(table.state.occupied == model.size());
  u64 rows = 0;
  for (const auto& [key, times] : model) rows += times;
  CHECK(table.state.pending == rows);
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
  std::mt19937 random(3);
  dg::lockstep::tiles = 4;
  dg::test::sample<dg::u32, 1>(random);
  dg::test::sample<dg::u64, 8>(random);
  std::printf("region: passed\n");
}

/// Two-level cuckoo tables, built by blocks of several tiles and read by tiles, against dictionaries: keys
/// with and without copies, a bucket with more rows than its block keeps, and one with too many keys.
#include <algorithm>
#include <set>

#include "method_case.h"

namespace dg::test {
namespace {

/// A table of so many buckets; `build` is what Python does.
template <class Table>
struct BuiltMemory {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Model = std::map<Key, std::multiset<u64>>;

  std::vector<Bucket> keys;
  std::vector<u64> lists, starts;
  std::vector<Value> values;
  std::vector<u32> seeds;
  TableState state{0, 0, 0, 0, {0, 0}, {~0ull, ~0ull}};
  TwoLevelCuckooStorage storage;

  BuiltMemory(u32 buckets, u32 subtable_slots, bool printed, bool wide, HashFunction deal)
      : seeds(buckets) {
    const u64 slots = u64{buckets} * kSubtables * subtable_slots;
    keys.resize(slots * Table::Slots::nbytes / kBucketBytes);
    lists.resize(Table::has_lists ? slots : 0);
    storage = {deal,   keys.data(), lists.data(), nullptr,        nullptr, seeds.data(),
               &state, 9,           buckets,      subtable_slots, printed, wide};
  }
  BuiltMemory(const BuiltMemory&) = delete;

  template <u32 Threads>
  void build(const std::vector<Key>& rows, const std::vector<Value>& row_values,
             const std::vector<u32>& tried) {
    const u64 n = rows.size(), buckets = storage.buckets;
    std::vector<u32> counts(buckets), offsets(n);
    std::vector<Key> dealt(n);
    std::vector<Value> dealt_values(n);
    starts.assign(buckets + 1, 0);
    values.assign(n, Value{});
    TwoLevelDealArgs args{storage,       rows.data(),         row_values.data(),
                          counts.data(), offsets.data(),      starts.data(),
                          dealt.data(),  dealt_values.data(), n};
    using One =
        TwoLevelCuckoo<Key, typename Chosen<Table::has_value, typename Table::Value, void>::Type>;
    two_level_count<One>(args);
    for (u64 i = 0; i < buckets; ++i) starts[i + 1] = starts[i] + counts[i];
    two_level_scatter<One>(args);
    storage.values = values.data();
    storage.list_starts = starts.data();
    two_level_build<Table, static_cast<int>(Threads)>(
        {{storage, dealt.data(), dealt_values.data(), starts.data(), tried.data(), tried.size(), 1,
          buckets}});
  }

  /// All keys are found with what belongs to them, and no others; the places hold each once.
  template <int W>
  void check(const Model& model) {
    std::vector<Key> asked;
    for (const auto& [key, each] : model) {
      asked.push_back(key);
      asked.push_back(key ^ 0x40000000u);
    }
    const u64 n = asked.size();
    u64 reads = 0;
    verb::probes<Table, W>({storage, asked.data(), &reads, n});
    CHECK(reads >= 2 * n && reads <= 4 * n);
    if constexpr (Table::has_lists) {
      std::vector<u64> counts(n), offsets(n + 1);
      verb::count<Table, W>({storage, asked.data(), counts.data(), n});
      for (u64 i = 0; i < n; ++i) offsets[i + 1] = offsets[i] + counts[i];
      std::vector<Value> got(offsets[n]);
      verb::gather<Table, W>({storage, asked.data(), offsets.data(), got.data(), {}, n});
      for (u64 i = 0; i < n; ++i) {
        const auto at = model.find(asked[i]);
        const std::multiset<u64> found(got.begin() + static_cast<i64>(offsets[i]),
                                       got.begin() + static_cast<i64>(offsets[i + 1]));
        CHECK(found == (at == model.end() ? std::multiset<u64>{} : at->second));
      }
    } else {
      std::vector<Value> got(n);
      std::vector<u8> found(n, 9);
      verb::find<Table, W>({storage, asked.data(), got.data(), found.data(), n, 77});
      for (u64 i = 0; i < n; ++i) {
        const auto at = model.find(asked[i]);
        CHECK(found[i] == (at != model.end()));
        if constexpr (Table::has_value)
          CHECK(static_cast<u64>(got[i]) == (found[i] ? *at->second.begin() : 77));
      }
    }
    std::map<Key, u32> seen;
    const Table table{storage};
    for (u64 place = 0; place < table.places(); ++place) {
      Key key{};
      Value value{};
      if (table.entry(place, key, value)) ++seen[key];
    }
    CHECK(seen.size() == model.size() && state.links == model.size());
    for (const auto& [key, times] : seen) CHECK(times == 1 && model.count(key));
    if constexpr (Table::has_value && !Table::has_lists) {
      const auto keys = numbered<Table, W>(storage);
      CHECK(keys.size() == model.size());
      for (u64 row = 0; row < keys.size(); ++row) {
        const auto found = table.find(Tile<1>{}, keys[row]);
        CHECK(found.found && found.value == row);
      }
    }
  }
};

template <class Value>
Value value_of(u64 row) {
  if constexpr (same<Value, NoValue>)
    return {};
  else
    return static_cast<Value>(row);
}

/// `copies`: how often one of the keys comes.
template <class Table, u32 Threads, int W>
void built(std::mt19937& random, u32 subtable_slots, u64 distinct, u64 copies, bool printed,
           u32 step) {
  using Key = typename Table::Key;
  BuiltMemory<Table> memory(2, subtable_slots, printed, false, {1, 0});
  std::set<Key> drawn;
  while (drawn.size() < distinct)
    drawn.insert(static_cast<Key>(random() % 0x40000000 / step * step));
  std::vector<Key> keys(drawn.begin(), drawn.end());
  keys.insert(keys.end(), copies, keys[5]);
  if (copies) keys.insert(keys.end(), keys.begin(), keys.begin() + 100);
  std::shuffle(keys.begin(), keys.end(), random);
  std::vector<typename Table::Value> values;
  typename BuiltMemory<Table>::Model model;
  for (u64 row = 0; row < keys.size(); ++row) {
    values.push_back(value_of<typename Table::Value>(row));
    model[keys[row]].insert(row);
  }
  std::vector<u32> seeds;
  for (u32 i = 0; i < 9; ++i) seeds.push_back(random() % 0xffff + 1);
  // Its first function is constant, so that two subtables are left, which are too small.
  seeds[0] = 0xffff;
  memory.template build<Threads>(keys, values, seeds);
  CHECK(memory.state.pending == 0);
  CHECK(memory.state.occupied == (Table::has_lists ? keys.size() : drawn.size()));
  for (const u32 seed : memory.seeds)
    CHECK((seed >> 16 & 0xff) <= kMostIterations && seed >> 24 >= 1);
  memory.template check<W>(model);
}

/// A bucket of more keys than slots tells of its rows, and the other bucket is built.
template <class Table, u32 Threads>
void refused() {
  using Key = typename Table::Key;
  BuiltMemory<Table> memory(2, kMostSubtableSlots / 2, sizeof(Key) == 4, false, {1, 0});
  const Table table{memory.storage};
  std::vector<Key> keys;
  u32 number[2] = {0, 0};
  for (Key key = 3; number[0] < 600; key += 7) {
    u32& held = number[table.bucket_of(table.bits_of(key))];
    if (&held == &number[1] && held == 50) continue;
    ++held;
    keys.push_back(key);
  }
  memory.template build<Threads>(keys, std::vector<typename Table::Value>(keys.size()), {77, 99});
  CHECK(memory.state.pending == 600 && memory.state.links == 50);
}

template <class Table, u32 Threads, int W>
void cases() {
  std::mt19937 random(Threads);
  const bool printed = sizeof(typename Table::Key) == 4;
  const u64 copies = Table::has_value && !Table::has_lists ? 0 : 1200;
  built<Table, Threads, W>(random, kMostSubtableSlots / 2, 800, 0, printed, 1);
  built<Table, Threads, W>(random, kMostSubtableSlots, 1500, copies, printed, 1);
  // Equal modulo the prime.
  built<Table, Threads, W>(random, kMostSubtableSlots / 2, 500, copies, false, kBucketPrime);
  refused<Table, Threads>();
}

template <class Table>
void widths(const char* name) {
  lockstep::tiles = 4;
  cases<Table, 1, 1>();
  // A block builds both buckets, one after the other.
  lockstep::tiles = 1;
  cases<Table, 8, 4>();
  std::printf("two-level cuckoo %s: passed\n", name);
}

/// Many buckets: the large prime deals to all of them.
void wide() {
  BuiltMemory<TwoLevelCuckoo<u32, void>> memory(kBucketPrime / 20, 192, false, true, {77777, 5});
  const TwoLevelCuckoo<u32, void> table{memory.storage};
  std::vector<u32> counts(memory.storage.buckets);
  for (u32 key = 0; key < 40 * counts.size(); ++key) ++counts[table.bucket_of(table.bits_of(key))];
  CHECK(*std::max_element(counts.begin(), counts.end()) < 90);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::widths<TwoLevelCuckoo<u32, void>>("u32");
  test::widths<TwoLevelCuckoo<u32, u32>>("u32 u32");
  test::widths<TwoLevelCuckoo<u64, u64>>("u64 u64");
  test::widths<TwoLevelCuckooLists<u32, u32>>("lists u32 u32");
  test::wide();
}

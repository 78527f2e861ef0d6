/// Cuckoo tables: what many lanes exchange at once stays whole, chains and the stash are as the thesis has them,
/// and what finds no place is told.
#include "method_case.h"

namespace dg::test {

template <class Table>
struct MethodMemory<Table, CuckooStorage> {
  std::vector<Bucket> slots, stash;
  TableState state = cleared_state();
  u64 counts[2] = {0, 0};
  CuckooStorage storage;

  MethodMemory(u32 buckets, u32 bucket, u32 functions, u32 stash_slots, u32 most_swaps,
               u32 seed = 1) {
    const auto cleared = [](u64 number) {
      Bucket empty;
      for (auto& word : empty.word) word = ~0ull;
      return std::vector<Bucket>(number * Table::Slots::nbytes / kBucketBytes + 1, empty);
    };
    slots = cleared(u64{buckets} * bucket);
    stash = cleared(stash_slots);
    storage = {
        slots.data(), stash.data(), &state,   counts,   seed,      buckets, bucket, functions,
        stash_slots,  most_swaps,   seed % 2, seed < 3, seed == 2, 0,       {},     {}};
    std::mt19937 random(seed);
    for (u32 i = 0; i < kCuckooFunctions + 1; ++i) {
      storage.a[i] = static_cast<u32>(random()) | 1;
      storage.b[i] = static_cast<u32>(random()) >> 1;
    }
  }
  MethodMemory(const MethodMemory&) = delete;

  Table table() const { return Table{storage}; }
};

namespace {

template <class Table>
using Pairs = std::map<typename Table::Key, typename Table::Value>;

template <class Table>
Pairs<Table> some_pairs(std::mt19937& random, u64 n) {
  Pairs<Table> made;
  while (made.size() < n) {
    typename Table::Value value{};
    if constexpr (Table::has_value) value = static_cast<typename Table::Value>(random());
    made[static_cast<typename Table::Key>(random() % (16 * n))] = value;
  }
  return made;
}

/// Launches a place of pairs, from the last key on; gives how many rows were refused.
template <class Table>
u64 place(MethodMemory<Table>& memory, const Pairs<Table>& pairs) {
  std::vector<typename Table::Key> keys;
  std::vector<typename Table::Value> values;
  for (const auto& [key, value] : pairs) {
    keys.push_back(key);
    values.push_back(value);
  }
  std::vector<u64> rows(keys.size());
  for (u64 row = 0; row < rows.size(); ++row) rows[row] = rows.size() - 1 - row;
  memory.state.pending = 0;
  verb::place<Table, 1>(
      {memory.storage, memory.storage, keys.data(), values.data(), rows.data(), rows.size()});
  return memory.state.pending;
}

template <class Value>
bool equal([[maybe_unused]] Value a, [[maybe_unused]] Value b) {
  if constexpr (same<Value, NoValue>)
    return true;
  else
    return a == b;
}

/// The places hold exactly these pairs, each once, and every search finds them.
template <class Table, int W>
void check(const MethodMemory<Table>& memory, const Pairs<Table>& pairs) {
  using Key = typename Table::Key;
  Pairs<Table> held;
  for (u64 place = 0; place < memory.table().places(); ++place) {
    Key key{};
    typename Table::Value value{};
    if (memory.table().entry(place, key, value)) CHECK(held.emplace(key, value).second);
  }
  CHECK(held.size() == pairs.size());
  std::vector<Key> keys;
  for (const auto& [key, value] : pairs) {
    CHECK(held.count(key) && equal(held[key], value));
    keys.push_back(key);
    keys.push_back(static_cast<Key>(key + 1));
  }
  std::vector<typename Table::Value> values(keys.size());
  std::vector<u8> found(keys.size(), 9);
  verb::find<Table, W>({memory.storage, keys.data(), values.data(), found.data(), keys.size(), 7});
  for (u64 row = 0; row < keys.size(); ++row) {
    const auto at = pairs.find(keys[row]);
    CHECK(found[row] == (at != pairs.end()));
    if (at != pairs.end()) CHECK(equal(values[row], at->second));
  }
}

/// Lanes that push each other's keys about leave all of them, whole, in the table; some are erased then,
/// and others come.
template <class Table>
void contract(u32 bucket, u32 functions, u64 keys, u32 buckets, u32 seed) {
  using Key = typename Table::Key;
  std::mt19937 random(seed);
  MethodMemory<Table> memory(buckets, bucket, functions, 101, 400, seed);
  auto pairs = some_pairs<Table>(random, keys);
  CHECK(place(memory, pairs) == 0);
  CHECK(memory.state.occupied == keys && memory.counts[1] == keys);
  CHECK(memory.counts[0] >= keys && memory.counts[0] < 40 * keys);
  check<Table, 1>(memory, pairs);
  check<Table, 4>(memory, pairs);
  if constexpr (Table::has_value) {
    std::vector<Key> some;
    std::vector<typename Table::Value> values;
    for (auto& [key, value] : pairs)
      if (key % 3 == 0) {
        some.push_back(key);
        values.push_back(value = static_cast<typename Table::Value>(random()));
      }
    verb::insert<Table, 1>({memory.storage, some.data(), values.data(), nullptr, nullptr, nullptr,
                            some.size(), static_cast<u64>(OnExisting::overwrite), 0});
    CHECK(memory.state.pending == 0 && memory.state.occupied == keys);
    check<Table, 1>(memory, pairs);
  }
  // Of rows with one key, one is told.
  memory.storage.holes = 1;
  std::vector<Key> gone;
  for (const auto& [key, value] : pairs)
    if (key % 2 == 0) gone.insert(gone.end(), {key, key, static_cast<Key>(key + 1)});
  std::vector<u8> erased(gone.size(), 9);
  verb::erase<Table, 1>({memory.storage, gone.data(), erased.data(), gone.size()});
  std::map<Key, u32> told;
  for (u64 row = 0; row < gone.size(); ++row) told[gone[row]] += erased[row];
  for (const auto& [key, times] : told) CHECK(times == pairs.erase(key));
  CHECK(memory.state.occupied == pairs.size() && memory.state.erased == 0);
  check<Table, 1>(memory, pairs);
  auto more = some_pairs<Table>(random, keys / 3);
  for (const auto& [key, value] : pairs) more.erase(key);
  CHECK(place(memory, more) == 0);
  pairs.merge(more);
  check<Table, 1>(memory, pairs);
  // Another table of another size gets the same.
  MethodMemory<Table> other(2 * buckets, bucket, functions, 101, 400, seed + 1);
  verb::place<Table, 1>(
      {other.storage, memory.storage, nullptr, nullptr, nullptr, memory.table().places()});
  CHECK(other.state.pending == 0 && other.state.occupied == pairs.size());
  check<Table, 1>(other, pairs);
  if constexpr (Table::has_value) {
    const auto keys = numbered<Table, 4>(other.storage);
    CHECK(keys.size() == pairs.size());
    for (u64 row = 0; row < keys.size(); ++row)
      pairs.at(keys[row]) = static_cast<typename Table::Value>(row);
    check<Table, 1>(other, pairs);
  }
}

/// Keys that all functions send to the same few slots: what does not fit there goes to the one slot of the stash
/// that is theirs, and one more is refused.
template <class Table>
void stash() {
  Pairs<Table> pairs;
  MethodMemory<Table> memory(1, 1, 4, 1, 9);
  for (u32 key = 0; key < 2; ++key) pairs[key] = {};
  CHECK(place(memory, pairs) == 0 && memory.state.links == 1);
  check<Table, 1>(memory, pairs);
  std::vector<typename Table::Key> gone{0, 1};
  std::vector<u8> erased(2);
  memory.storage.holes = 1;
  verb::erase<Table, 1>({memory.storage, gone.data(), erased.data(), 2});
  CHECK(erased[0] && erased[1] && memory.state.links == 0);
  pairs[2] = {};
  CHECK(place(memory, pairs) == 1 && memory.state.occupied == 2 && memory.state.links == 1);
  MethodMemory<Table> none(1, 1, 2, 0, 9);
  CHECK(place(none, pairs) >= 1 && none.state.occupied == 1 && none.state.links == 0);
}

/// An EMPTY slot ends a search, until keys were erased; and in the stash are only keys whose buckets are full.
template <class Table>
void early_stop() {
  std::mt19937 random(3);
  MethodMemory<Table> memory(90, 1, 3, 101, 1, 3);
  const auto pairs = some_pairs<Table>(random, 70);
  place(memory, pairs);
  CHECK(memory.state.links > 0 && memory.state.occupied <= pairs.size());
  Pairs<Table> held;
  for (u64 at = 0; at < memory.table().places(); ++at) {
    typename Table::Key key{};
    typename Table::Value value{};
    if (memory.table().entry(at, key, value)) held.emplace(key, value);
  }
  check<Table, 1>(memory, held);
  u64 before = 0, after = 0;
  std::vector<typename Table::Key> absent;
  for (u64 i = 0; i < 300; ++i) absent.push_back(static_cast<typename Table::Key>(1 << 20 | i));
  verb::probes<Table, 1>({memory.storage, absent.data(), &before, absent.size()});
  memory.storage.holes = 1;
  verb::probes<Table, 1>({memory.storage, absent.data(), &after, absent.size()});
  CHECK(before < 3 * absent.size() && after == 4 * absent.size());
}

/// Of equal keys in a launch, one lane or the count of doubles afterwards tells.
template <class Table>
void equal_keys() {
  using Key = typename Table::Key;
  for (u32 seed = 0; seed < 6; ++seed) {
    MethodMemory<Table> memory(60, 1, 2 + seed % 4, 101, 200, seed);
    std::vector<Key> keys;
    for (u32 i = 0; i < 24; ++i) keys.push_back(static_cast<Key>(i));
    keys.push_back(keys[seed]);
    std::vector<typename Table::Value> values(keys.size());
    const auto doubles = [&] {
      u64 total = 0;
      verb::doubles<Table, 1>({memory.storage, nullptr, &total, memory.table().places()});
      return total;
    };
    verb::place<Table, 1>(
        {memory.storage, memory.storage, keys.data(), values.data(), nullptr, 24});
    CHECK(memory.state.pending == 0 && doubles() == 0);
    verb::place<Table, 1>(
        {memory.storage, memory.storage, keys.data() + 24, values.data(), nullptr, 1});
    CHECK(memory.state.pending + doubles() == 1);
  }
}

template <class Table>
void all(const char* name) {
  lockstep::tiles = 8;
  contract<Table>(1, 4, 200, 250, 1);
  contract<Table>(1, 2, 100, 230, 2);
  contract<Table>(1, 5, 100, 104, 3);
  contract<Table>(8, 2, 200, 27, 4);
  stash<Table>();
  early_stop<Table>();
  equal_keys<Table>();
  std::printf("%s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::all<Cuckoo<u32, void>>("u32");
  test::all<Cuckoo<u64, void>>("u64");
  test::all<Cuckoo<u32, u32>>("u32 -> u32");
  test::all<Cuckoo<u64, u64>>("u64 -> u64");
}

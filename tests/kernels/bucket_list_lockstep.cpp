/// Appends by tiles of every width, several of them to the same keys, against a dictionary.
#include <algorithm>

#include "lockstep_case.h"

namespace dg::test {
namespace {

/// Sizes that grow by half; every bucket takes whole grains.
std::vector<u64> growth_table(u64 first, u64 grain, u64 levels) {
  std::vector<u64> slots_end;
  u64 size = first, end = 0;
  for (u64 level = 0; level < levels; ++level) {
    const u64 slots = (size + (level > 0) + grain - 1) / grain * grain;
    slots_end.push_back(end += slots);
    size += (size + 1) / 2;
  }
  return slots_end;
}

template <class Key, class Value>
struct Lists {
  TableMemory<Key, u64> keys{29};
  std::vector<u64> slots_end;
  std::vector<Value> slots;
  PoolState pool{0, 0};
  ListStorage storage;

  Lists(u64 capacity, u64 grain_shift)
      : slots_end(growth_table(1, 1ull << grain_shift, 6)), slots(capacity) {
    storage = {keys.storage,
               {slots.data(), &pool, capacity},
               {slots_end.data(), slots_end.size(), grain_shift}};
  }
};

template <class Key, class Value, int W>
struct Appends {
  Lists<Key, Value>& lists;
  std::map<Key, std::vector<Value>>& model;
  std::mt19937& random;
  Value next = 1;

  /// Runs of `longest` values at most; distinct keys get a plan, others ask the pool.
  void append(std::vector<Key> keys, u64 longest, bool planned) {
    const u64 n = keys.size();
    std::vector<u64> offsets{0}, need(n, ~0ull), places, pending(n);
    std::vector<Value> values;
    for (u64 run = 0; run < n; ++run) {
      const u64 length = random() % (longest + 1);
      auto& stored = model[keys[run]];
      for (u64 i = 0; i < length; ++i) {
        values.push_back(next);
        stored.push_back(next++);
      }
      offsets.push_back(values.size());
      if (stored.empty()) model.erase(keys[run]);
    }
    if (planned) {
      u64 absent = 0;
      list_need<Key, W>({lists.storage, keys.data(), offsets.data(), need.data(), &absent, n});
      places.push_back(lists.pool.used);
      for (const u64 each : need) places.push_back(places.back() + each);
      lists.pool.used = places.back();
      CHECK(lists.pool.used <= lists.slots.size());
    }
    list_append<Key, Value, W>({lists.storage, keys.data(), offsets.data(), values.data(),
                                planned ? places.data() : nullptr, pending.data(), n, ~0ull});
    // The plan is exact: nothing more was taken.
    if (planned) CHECK(lists.pool.used == places.back());
    CHECK(lists.keys.state.pending == 0 && lists.pool.refused == 0);
    CHECK(lists.keys.state.occupied == model.size());
  }

  void check(bool in_order) {
    std::vector<Key> keys{1000};
    for (const auto& [key, values] : model) keys.push_back(key);
    std::vector<u64> counts(keys.size()), offsets(keys.size());
    list_count<Key, W>({lists.storage, keys.data(), counts.data(), keys.size()});
    u64 total = 0;
    for (u64 row = 0; row < keys.size(); ++row) {
      offsets[row] = total;
      total += counts[row];
    }
    CHECK(counts[0] == 0);
    std::vector<Value> out(total);
    list_retrieve<Key, Value, W>(
        {lists.storage, keys.data(), offsets.data(), out.data(), keys.size()});
    for (u64 row = 1; row < keys.size(); ++row) {
      auto expected = model[keys[row]];
      CHECK(counts[row] == expected.size());
      std::vector<Value> got(out.begin() + offsets[row], out.begin() + offsets[row] + counts[row]);
      if (!in_order) {
        std::sort(got.begin(), got.end());
        std::sort(expected.begin(), expected.end());
      }
      CHECK(got == expected);
    }
  }
};

std::vector<u64> distinct(std::mt19937& random, u64 n) {
  std::vector<u64> keys(n);
  for (u64 i = 0; i < n; ++i) keys[i] = i;
  std::shuffle(keys.begin(), keys.end(), random);
  return keys;
}

template <class Key, class Value, int W>
void appends(u64 grain_shift) {
  std::mt19937 random(W);
  Lists<Key, Value> lists(20000, grain_shift);
  std::map<Key, std::vector<Value>> model;
  Appends<Key, Value, W> with{lists, model, random};
  for (int round = 0; round < 2; ++round) {
    const auto keys = distinct(random, 20);
    std::vector<Key> run_keys(keys.begin(), keys.end());
    run_keys.push_back(Mark<Key>::empty);
    run_keys.push_back(Mark<Key>::erased);
    with.append(run_keys, 3 + 60 * round, true);
    with.check(true);
  }
  // One run for each value and few keys: the paper's concurrent insert.
  with.append(contended_keys<Key>(random, W >= 16 ? 60 : 200, 6), 1, false);
  with.append(contended_keys<Key>(random, 30, 4), 40, false);
  with.check(false);
}

/// A pool that runs dry refuses whole runs and writes nothing beyond its end.
template <class Key, class Value, int W>
void dry_pool() {
  Lists<Key, Value> lists(64, 0);
  lists.slots.resize(128, 0);
  lists.storage.pool.slots = lists.slots.data();
  std::vector<Key> keys;
  std::vector<u64> offsets{0}, pending(40), counts(40);
  std::vector<Value> values;
  for (u64 run = 0; run < 40; ++run) {
    keys.push_back(static_cast<Key>(run % 20));
    for (u64 i = 0; i < 3; ++i) values.push_back(static_cast<Value>(run * 3 + i));
    offsets.push_back(values.size());
  }
  list_append<Key, Value, W>({lists.storage, keys.data(), offsets.data(), values.data(), nullptr,
                              pending.data(), 40, ~0ull});
  CHECK(lists.pool.used <= 64 && lists.pool.refused > 0);
  for (u64 slot = 64; slot < 128; ++slot) CHECK(lists.slots[slot] == 0);
  list_count<Key, W>({lists.storage, keys.data(), counts.data(), 20});
  u64 stored = 0;
  for (u64 row = 0; row < 20; ++row) stored += counts[row];
  CHECK(stored + 3 * lists.keys.state.pending == values.size());
}

template <class Key, class Value>
void all_widths(const char* name) {
  for_each_width([]<int W>() {
    appends<Key, Value, W>(0);
    appends<Key, Value, W>(2);
    dry_pool<Key, Value, W>();
  });
  std::printf("bucket list %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::all_widths<u32, u32>("u32 -> u32");
  test::all_widths<u64, u64>("u64 -> u64");
}

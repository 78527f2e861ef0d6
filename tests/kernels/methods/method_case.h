/// What the lockstep tests of methods share: the memory of a method's table, and its verbs as functions.
#pragma once

#include "../lockstep_case.h"

namespace dg::test {

/// Memory of an empty table that holds at least so many keys; `storage` is what kernels get. One
/// specialisation for each method, by its `Storage`.
template <class Table, class Storage = typename Table::Storage>
struct MethodMemory;

inline TableState cleared_state() { return {0, 0, 0, 0, {0, 0}, {~0ull, ~0ull}}; }

inline u64 prime_from(u64 number) {
  const auto prime = [](u64 n) {
    for (u64 d = 2; d * d <= n; ++d)
      if (n % d == 0) return false;
    return n > 1;
  };
  while (!prime(number)) ++number;
  return number;
}

template <class Table>
struct MethodMemory<Table, CopsStorage> {
  std::vector<Bucket> keys;
  std::vector<u64> values;
  TableState state = cleared_state();
  CopsStorage storage;

  explicit MethodMemory(u64 rows, u64 seed = 1) {
    const u64 windows = prime_from((rows + kWindowSlots - 1) / kWindowSlots);
    keys.assign(windows * kWindowSlots * Table::Slots::nbytes / kBucketBytes, Bucket{});
    for (auto& bucket : keys)
      for (auto& word : bucket.word) word = ~0ull;
    const bool apart = Table::has_value && !Table::Slots::paired;
    values.assign(apart ? windows * kWindowSlots : 0, ~0ull);
    storage = {keys.data(), apart ? values.data() : nullptr, &state, windows, seed};
  }
  MethodMemory(const MethodMemory&) = delete;
};

template <class Table>
struct MethodMemory<Table, ProbedStorage> {
  std::vector<u64> slots;
  TableState state = cleared_state();
  ProbedStorage storage;

  explicit MethodMemory(u64 rows, u64 seed = 1) {
    // Sequences other than the linear one do not visit all slots.
    const u64 count = 4 * rows;
    slots.assign(count * Table::Slots::nbytes / 8 + 1, ~0ull);
    storage = {{0x9e3779b1u, 17}, slots.data(), &state, count, count, seed, 0, seed % 2 ? 1u : 0u};
  }
  MethodMemory(const MethodMemory&) = delete;
};

/// Gives each key in the places its number for a value, and the keys by number.
template <class Table, int W>
std::vector<typename Table::Key> numbered(const typename Table::Storage& storage) {
  const u64 rows = Table{storage}.places(), segment = 70, segments = (rows + segment - 1) / segment;
  std::vector<u32> counts(segments);
  std::vector<u64> offsets(segments);
  std::vector<typename Table::Key> keys(rows);
  verb::PlacesArgs<typename Table::Storage> args{
      storage, counts.data(), offsets.data(), keys.data(), nullptr, rows, segment, segments};
  verb::places<Table, W>(args);
  for (u64 i = 1; i < segments; ++i) offsets[i] = offsets[i - 1] + counts[i - 1];
  verb::number<Table, W>(args);
  keys.resize(offsets.back() + counts.back());
  return keys;
}

/// One method's table, and the dictionary that says what it has to answer. Values are a row's own, unless
/// they are combined.
template <class Table>
struct MethodCase {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Storage = typename Table::Storage;

  MethodMemory<Table> memory;
  /// Each key's values that a search may give.
  std::map<Key, std::vector<u64>> model;

  explicit MethodCase(u64 rows, u64 seed = 1) : memory(rows, seed) {}

  std::vector<Value> values_of(const std::vector<Key>& keys, u64 batch) const {
    std::vector<Value> values(keys.size());
    if constexpr (Table::has_value)
      for (u64 row = 0; row < keys.size(); ++row)
        values[row] = static_cast<Value>(batch << 16 | row);
    return values;
  }

  /// Inserts a batch, and checks that each new key has one row that created it; gives the rows refused.
  template <int W>
  std::vector<u64> insert(const std::vector<Key>& keys, u64 batch, OnExisting action) {
    const auto values = values_of(keys, batch);
    std::vector<u8> fresh(keys.size(), 9);
    std::vector<u64> pending(keys.size());
    memory.state.pending = 0;
    launch<W>(keys, values, fresh, pending, action);
    pending.resize(memory.state.pending);
    std::vector<bool> refused(keys.size());
    for (const u64 row : pending) refused.at(row) = true;
    std::map<Key, u32> created;
    std::map<Key, std::vector<u64>> brought;
    for (u64 row = 0; row < keys.size(); ++row) {
      CHECK(fresh[row] <= 1 && !(fresh[row] && refused[row]));
      if (refused[row]) continue;
      created[keys[row]] += fresh[row];
      if constexpr (Table::has_value)
        brought[keys[row]].push_back(values[row]);
      else
        brought[keys[row]];
    }
    for (const auto& [key, rows] : brought) {
      CHECK(created[key] == !model.count(key));
      if (action == OnExisting::keep && model.count(key)) continue;
      if (action == OnExisting::sum) {
        u64 sum = model.count(key) ? model[key].at(0) : 0;
        for (const u64 each : rows) sum += each;
        model[key] = {sum};
      } else {
        model[key] = rows;
      }
    }
    CHECK(memory.state.occupied == model.size());
    return pending;
  }

  /// All keys of the model are found and no others, with one of the values that they may have.
  template <int W>
  void check_find(const std::vector<Key>& keys) {
    std::vector<Value> values(keys.size());
    std::vector<u8> found(keys.size(), 9);
    verb::find<Table, W>(
        {memory.storage, keys.data(), values.data(), found.data(), keys.size(), 77});
    for (u64 row = 0; row < keys.size(); ++row) {
      const auto at = model.find(keys[row]);
      CHECK(found[row] == (at != model.end()));
      if constexpr (Table::has_value) {
        bool right = !found[row] && values[row] == 77;
        if (found[row])
          for (const u64 each : at->second) right |= values[row] == static_cast<Value>(each);
        CHECK(right);
        // What it is now it stays.
        if (found[row]) at->second = {values[row]};
      }
    }
  }

  template <int W>
  void erase(const std::vector<Key>& keys) {
    std::vector<u8> erased(keys.size(), 9);
    verb::erase<Table, W>({memory.storage, keys.data(), erased.data(), keys.size()});
    std::map<Key, u32> count;
    for (u64 row = 0; row < keys.size(); ++row) count[keys[row]] += erased[row];
    for (const auto& [key, times] : count) CHECK(times == model.count(key));
    for (const Key key : keys) model.erase(key);
    CHECK(memory.state.occupied == model.size());
  }

  /// The places hold what searches find, each key once; then each has its number for a value, if the table
  /// can number its keys.
  template <int W>
  void check_items() {
    const u64 rows = Table{memory.storage}.places(), segment = 50;
    const u64 segments = (rows + segment - 1) / segment;
    std::vector<u32> counts(segments);
    std::vector<u64> offsets(segments);
    verb::PlacesArgs<Storage> args{memory.storage, counts.data(), offsets.data(), nullptr,
                                   nullptr,        rows,          segment,        segments};
    verb::places<Table, W>(args);
    u64 total = 0;
    for (u64 i = 0; i < segments; ++i) {
      offsets[i] = total;
      total += counts[i];
    }
    CHECK(total + memory.state.side_present[0] + memory.state.side_present[1] == model.size());
    std::vector<Key> keys(total);
    std::vector<Value> values(total);
    args.keys = keys.data();
    args.values = values.data();
    verb::items<Table, W>(args);
    std::map<Key, u32> seen;
    for (u64 row = 0; row < total; ++row) {
      CHECK(++seen[keys[row]] == 1 && model.count(keys[row]));
      if constexpr (Table::has_value) {
        bool right = false;
        for (const u64 each : model[keys[row]]) right |= values[row] == static_cast<Value>(each);
        CHECK(right);
      }
    }
    if constexpr (requires(Table table, Key key, Value value) { table.set_value(0, key, value); }) {
      CHECK((numbered<Table, W>(memory.storage) == keys));
      for (u64 row = 0; row < total; ++row) model[keys[row]] = {row};
      check_find<W>(keys);
    }
  }

  /// Another table of another size and seed gets the same keys and values.
  template <int W>
  void check_rehash(u64 rows) {
    MethodCase other(rows, 7);
    const u64 beside = memory.state.side_present[0] + memory.state.side_present[1];
    const TableState was = other.memory.state;
    other.memory.state = memory.state;
    other.memory.state.occupied = beside;
    other.memory.state.erased = was.erased;
    other.memory.state.links = was.links;
    std::vector<u64> pending(Table{memory.storage}.places());
    verb::rehash<Table, W>({memory.storage, other.memory.storage, pending.data(), pending.size()});
    CHECK(other.memory.state.pending == 0 && other.memory.state.occupied == model.size());
    other.model = model;
    std::vector<Key> keys;
    for (const auto& [key, values] : model) keys.push_back(key);
    other.template check_find<W>(keys);
    other.template check_items<W>();
  }

 private:
  template <int W>
  void launch(const std::vector<Key>& keys, const std::vector<Value>& values,
              std::vector<u8>& fresh, std::vector<u64>& pending, OnExisting action) {
    verb::insert<Table, W>({memory.storage, keys.data(), values.data(), nullptr, fresh.data(),
                            pending.data(), keys.size(), static_cast<u64>(action),
                            static_cast<u64>(ValueKind::unsigned_integer)});
  }
};

}  // namespace dg::test

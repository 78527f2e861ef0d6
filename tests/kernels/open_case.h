/// Insert, find and erase by tiles of every width, against a dictionary; included by the tests of each kind of
/// keys.
#pragma once

#include <array>

#include "lockstep_case.h"
// Behind the case, which says that lanes are in lockstep.
#include "device/auto.cuh"
#include "device/view.cuh"

namespace dg::test {
namespace {

/// A bucket takes four lanes, or one that takes turns.
template <int W>
inline constexpr int kWide = W == 2 ? 4 : W;

template <class Value>
using Stored = typename StoredAs<Value>::Type;

/// A value that says which row of which batch wrote it.
template <class Value>
Stored<Value> value_for(u64 batch, u64 row) {
  if constexpr (same<Value, void>)
    return {};
  else
    return static_cast<Stored<Value>>(batch << 20 | row);
}

template <class Key, class Value>
struct Batch {
  std::vector<Key> keys;
  std::vector<Stored<Value>> values;
  std::vector<u8> flags;
  std::vector<u64> pending;

  Batch(std::vector<Key> given, u64 number)
      : keys(std::move(given)), values(keys.size()), flags(keys.size(), 9), pending(keys.size()) {
    for (u64 row = 0; row < keys.size(); ++row) values[row] = value_for<Value>(number, row);
  }
};

/// Inserts, and checks that each new key has one row that created it, and every key a whole value
/// of its rows.
template <class Key, class Value, int W>
void insert(TableMemory<Key, Value>& table, std::map<Key, u64>& model, Batch<Key, Value>& batch,
            bool overwrite) {
  open_insert<Key, Value, kWide<W>>({table.storage, batch.keys.data(), batch.values.data(),
                                     batch.flags.data(), batch.pending.data(), batch.keys.size(),
                                     ~0ull, overwrite});
  std::map<Key, u32> created;
  for (u64 row = 0; row < batch.keys.size(); ++row) {
    CHECK(batch.flags[row] <= 1);
    created[batch.keys[row]] += batch.flags[row];
  }
  for (const auto& [key, count] : created) CHECK(count == !model.count(key));
  for (const Key key : batch.keys) model.emplace(key, 0);
  CHECK(table.state.pending == 0);
  CHECK(table.state.occupied == model.size());
}

template <class Key, class Value, int W>
std::vector<Stored<Value>> find(TableMemory<Key, Value>& table, const std::vector<Key>& keys,
                                std::vector<u8>& found) {
  std::vector<Stored<Value>> values(keys.size());
  found.assign(keys.size(), 9);
  open_find<Key, Value, kWide<W>>(
      {table.storage, keys.data(), values.data(), found.data(), keys.size(), 77});
  return values;
}

/// As `open_find`, by tiles that search for one key after the other as kernels of users do.
template <class Value>
struct Noted {
  template <class Key>
  void operator()(Key, Stored<Value> value, u64 row, const u64* extra) const {
    if constexpr (!same<Value, void>) reinterpret_cast<Stored<Value>*>(extra[0])[row] = value;
    reinterpret_cast<u8*>(extra[1])[row] = 1;
  }
};

template <class Key, class Value, int W>
void check_view(TableMemory<Key, Value>& table, const std::vector<Key>& keys,
                const std::vector<Stored<Value>>& values, const std::vector<u8>& found) {
  std::vector<Stored<Value>> seen(keys.size());
  if constexpr (!same<Value, void>) std::fill(seen.begin(), seen.end(), Stored<Value>{77});
  std::vector<u8> there(keys.size());
  device::visit_found<device::Auto<Key, Value>, Noted<Value>, W>(
      {table.storage,
       keys.data(),
       {reinterpret_cast<u64>(seen.data()), reinterpret_cast<u64>(there.data())},
       keys.size()});
  CHECK(there == found);
  if constexpr (!same<Value, void>) CHECK(seen == values);
}

/// All keys of the model are found and no others; values come from a row with that key.
template <class Key, class Value, int W>
void check_find(TableMemory<Key, Value>& table, const std::map<Key, u64>& model,
                const std::vector<Key>& keys, const Batch<Key, Value>* only_from) {
  std::vector<u8> found;
  const auto values = find<Key, Value, W>(table, keys, found);
  // Kernels of users take no keys of 16 bytes.
  if constexpr (sizeof(Key) <= 8) check_view<Key, Value, W>(table, keys, values, found);
  for (u64 row = 0; row < keys.size(); ++row) {
    CHECK(found[row] == model.count(keys[row]));
    if constexpr (!same<Value, void>) {
      if (!found[row]) CHECK(values[row] == 77);
      if (found[row] && only_from) {
        const u64 writer = values[row] & 0xfffff;
        CHECK(only_from->keys.at(writer) == keys[row]);
        CHECK(only_from->values.at(writer) == values[row]);
      }
    }
  }
}

/// Slots that get the keys of others in their order answer as those do; marks are told apart.
template <class Key, class Value, int W>
void check_place(TableMemory<Key, Value>& table, std::vector<u64> offsets,
                 const std::vector<Key>& keys, const std::vector<Stored<Value>>& values) {
  constexpr int width = W > 4 ? 4 : W;
  const u64 buckets = table.buckets.size();
  offsets.push_back(keys.size());
  TableMemory<Key, Value> made(buckets >> table.storage.segment_shift, table.storage.segment_shift);
  made.overflow = table.overflow;
  u64 placed = 0;
  open_place<Key, Value, width>(
      {made.storage, offsets.data(), keys.data(), values.data(), &placed, buckets});
  CHECK(placed == keys.size());
  std::vector<u8> found;
  const auto there = find<Key, Value, W>(made, keys, found);
  for (const u8 each : found) CHECK(each == 1);
  if constexpr (!same<Value, void>) CHECK(there == values);
  std::vector<u32> counts(buckets);
  open_count<Key, Value, width>({made.storage, counts.data(), buckets});
  for (u64 bucket = 0; bucket < buckets; ++bucket)
    CHECK(counts[bucket] == offsets[bucket + 1] - offsets[bucket]);
  std::vector<Key> marks = keys;
  marks[0] = Mark<Key>::erased;
  placed = 0;
  open_place<Key, Value, width>(
      {made.storage, offsets.data(), marks.data(), values.data(), &placed, buckets});
  CHECK(placed + 1 == keys.size());
}

template <class Key, class Value, int W>
void check_items(TableMemory<Key, Value>& table, const std::map<Key, u64>& model) {
  constexpr int width = W > 4 ? 4 : W;
  const u64 buckets = table.buckets.size();
  std::vector<u32> counts(buckets);
  open_count<Key, Value, width>({table.storage, counts.data(), buckets});
  std::vector<u64> offsets(buckets);
  u64 total = 0;
  for (u64 bucket = 0; bucket < buckets; ++bucket) {
    offsets[bucket] = total;
    total += counts[bucket];
  }
  CHECK(total + table.state.side_present[0] + table.state.side_present[1] == model.size());
  std::vector<Key> keys(total);
  std::vector<Stored<Value>> values(total);
  open_items<Key, Value, width>(
      {table.storage, offsets.data(), keys.data(), values.data(), buckets});
  std::map<Key, u64> seen;
  std::vector<u8> found;
  const auto expected = find<Key, Value, W>(table, keys, found);
  for (u64 row = 0; row < total; ++row) {
    CHECK(model.count(keys[row]));
    CHECK(seen.emplace(keys[row], 0).second);
    if constexpr (!same<Value, void>) CHECK(values[row] == expected[row]);
  }
  // Marks of erased keys are not placed, and searches go on beyond them.
  if (table.state.erased == 0) check_place<Key, Value, W>(table, offsets, keys, values);
  u64 present = 0, absent = 0;
  open_lines<Key, Value, width>({table.storage, &present, &absent, buckets});
  CHECK(present >= total && present <= total * buckets);
  CHECK(absent >= buckets && absent <= buckets * buckets);
}

/// A larger table gets the same keys and values.
template <class Key, class Value, int W>
void check_rehash(TableMemory<Key, Value>& table, const std::map<Key, u64>& model) {
  TableMemory<Key, Value> larger(40, 1);
  const u64 beside = table.state.side_present[0] + table.state.side_present[1];
  larger.state = table.state;
  larger.state.occupied = beside;
  open_rehash<Key, Value, kWide<W>>(
      {table.storage, larger.storage, table.buckets.size() * Slot<Key, Value>::per_bucket});
  CHECK(larger.state.occupied == model.size());
  std::vector<Key> keys;
  for (const auto& [key, count] : model) keys.push_back(key);
  std::vector<u8> found, found_there;
  const auto values = find<Key, Value, W>(table, keys, found);
  const auto values_there = find<Key, Value, W>(larger, keys, found_there);
  if constexpr (!same<Value, void>) CHECK(values == values_there);
  CHECK(found == found_there);
}

template <class Key, class Value, int W>
void erase(TableMemory<Key, Value>& table, std::map<Key, u64>& model,
           const std::vector<Key>& keys) {
  std::vector<u8> erased(keys.size(), 9);
  open_erase<Key, Value, kWide<W>>({table.storage, keys.data(), erased.data(), keys.size()});
  std::map<Key, u32> count;
  for (u64 row = 0; row < keys.size(); ++row) count[keys[row]] += erased[row];
  for (const auto& [key, times] : count) CHECK(times == model.count(key));
  for (const Key key : keys) model.erase(key);
  CHECK(table.state.occupied == model.size());
}

template <class Key, class Value, int W>
void verbs(u64 segments, u64 segment_shift) {
  std::mt19937 random(W);
  // Fifteen buckets' worth of keys in some thirty, which also hold the marks of erased ones: buckets
  // overflow.
  const u32 range = Slot<Key, Value>::per_bucket * 15;
  const u64 n = W >= 16 ? 60 : 150;
  TableMemory<Key, Value> table(segments, segment_shift);
  std::map<Key, u64> model;
  Batch<Key, Value> first(contended_keys<Key>(random, n, range), 1);
  insert<Key, Value, W>(table, model, first, false);
  check_find<Key, Value, W>(table, model, contended_keys<Key>(random, n, range * 2), &first);
  // Every width finds what another inserted.
  check_find<Key, Value, (W * 4) % 31>(table, model, first.keys, &first);
  Batch<Key, Value> again(first.keys, 2);
  insert<Key, Value, W>(table, model, again, true);
  check_find<Key, Value, W>(table, model, first.keys, &again);
  check_items<Key, Value, W>(table, model);
  erase<Key, Value, W>(table, model, contended_keys<Key>(random, n, range));
  check_find<Key, Value, W>(table, model, first.keys, nullptr);
  Batch<Key, Value> last(contended_keys<Key>(random, n, range), 3);
  insert<Key, Value, W>(table, model, last, false);
  check_find<Key, Value, W>(table, model, last.keys, nullptr);
  check_items<Key, Value, W>(table, model);
  check_rehash<Key, Value, W>(table, model);
}

/// All tiles want the same few slots of one bucket.
template <class Key, class Value, int W>
void one_key() {
  TableMemory<Key, Value> table(7);
  std::map<Key, u64> model;
  Batch<Key, Value> batch(std::vector<Key>(40, 5), 1);
  insert<Key, Value, W>(table, model, batch, true);
  check_find<Key, Value, W>(table, model, {5, 6}, &batch);
}

/// No more keys than the limit or the slots; the rest is pending, nothing is lost, nothing loops
/// for ever.
template <class Key, class Value, int W>
void full(u64 limit) {
  TableMemory<Key, Value> table(7);
  const u64 slots = table.buckets.size() * Slot<Key, Value>::per_bucket;
  std::vector<Key> keys;
  for (u64 i = 0; i < slots + 20; ++i) keys.push_back(static_cast<Key>(i * 7 + 1));
  Batch<Key, Value> batch(keys, 1);
  open_insert<Key, Value, kWide<W>>({table.storage, batch.keys.data(), batch.values.data(),
                                     batch.flags.data(), batch.pending.data(), keys.size(), limit,
                                     0});
  const u64 room = limit < slots ? limit : slots;
  CHECK(table.state.occupied <= room && table.state.occupied + table.state.pending == keys.size());
  // A tile that gives its place back may have turned another away, never more than there are tiles.
  CHECK(table.state.occupied + lockstep::tiles >= room);
  std::vector<u8> found;
  find<Key, Value, W>(table, keys, found);
  for (u64 i = 0; i < table.state.pending; ++i) CHECK(!found[batch.pending[i]]);
  u64 stored = 0;
  for (u64 row = 0; row < keys.size(); ++row) stored += found[row];
  CHECK(stored == table.state.occupied);
}

/// In a table without a gap some walks are so long that their rows are answered after the chunk of
/// answers that they belong to.
template <class Key, class Value, int W>
void late_answers() {
  TableMemory<Key, Value> table(1, 6);
  const u64 slots = table.buckets.size() * Slot<Key, Value>::per_bucket;
  std::map<Key, u64> model;
  Batch<Key, Value> batch({}, 1);
  for (u64 row = 0; row < slots; ++row) {
    batch.keys.push_back(static_cast<Key>(row * 7 + 1));
    batch.values.push_back(value_for<Value>(1, row));
  }
  batch.flags.resize(slots);
  insert<Key, Value, 1>(table, model, batch, false);
  std::vector<Key> keys;
  for (u64 row = 0; row < lockstep::tiles * 320 + 21; ++row)
    keys.push_back(row % 32 == 5   ? static_cast<Key>(row * 7)
                   : row % 32 == 9 ? batch.keys[slots - 1 - row / 32 % 4]
                                   : batch.keys[row % slots]);
  check_find<Key, Value, W>(table, model, keys, &batch);
  std::vector<u8> found(keys.size(), 9);
  open_find<Key, Value, kWide<W>>(
      {table.storage, keys.data(), nullptr, found.data(), keys.size(), 77});
  for (u64 row = 0; row < keys.size(); ++row) CHECK(found[row] == model.count(keys[row]));
}

template <class Key, class Value>
void all_widths(const char* name) {
  for_each_width([]<int W>() {
    verbs<Key, Value, W>(29, 0);
    verbs<Key, Value, W>(7, 2);
    verbs<Key, Value, W>(1, 5);
    one_key<Key, Value, W>();
    full<Key, Value, W>(20);
    full<Key, Value, W>(~0ull);
  });
  std::printf("open %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

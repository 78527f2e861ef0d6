/// COPS: one order of slots for tiles of every width, tables that fill up, and several values a key.
#include <set>

#include "method_case.h"

namespace dg::test {
namespace {

/// Every window once, from any hash, and from one line of it on.
void windows_of_hashes() {
  std::mt19937_64 random(5);
  for (const u64 windows : {2, 3, 5, 31, 101}) {
    for (u32 turn = 0; turn < 50; ++turn) {
      const u64 hash = turn ? random() : ~0ull;
      std::set<u64> seen;
      CopsProbe probe(windows, hash);
      for (u64 i = 0; i < windows; ++i, probe.next(windows, hash)) {
        CHECK(probe.window < windows);
        seen.insert(probe.window);
      }
      CHECK(seen.size() == windows);
      for (const u32 quarters : {8u, 16u, 32u}) {
        const u32 first = CopsProbe::first_quarter(hash, quarters);
        CHECK(first < quarters && first % kQuarters == 0);
      }
    }
  }
}

/// The slots of a key's sequence, in their order.
template <class Table>
std::vector<u64> sequence(const Table& table, typename Table::Key key) {
  const u64 hash = table.hash_of(key);
  const u64 start = CopsProbe::first_quarter(hash, Table::window_quarters) * Table::per_quarter;
  CopsProbe probe(table.at.windows, hash);
  std::vector<u64> slots;
  for (u64 i = 0; i < table.at.windows; ++i, probe.next(table.at.windows, hash))
    for (u64 at = 0; at < kWindowSlots; ++at)
      slots.push_back(probe.window * kWindowSlots + (start + at) % kWindowSlots);
  return slots;
}

/// Fills the table with one key after the other, each by a tile of width W: it takes the first EMPTY slot of
/// its sequence, or the table is full. The search for a key reads the windows up to that slot.
template <class Table, int W>
void first_empty_slot() {
  using Key = typename Table::Key;
  lockstep::tiles = 1;
  MethodCase<Table> table(W == 32 ? 64 : 96);
  const Table view{table.memory.storage};
  const u64 slots = view.places();
  std::vector<bool> taken(slots);
  for (u64 i = 0; i < slots + 3; ++i) {
    const Key key = static_cast<Key>(i * 11 + 1);
    u64 place = 0, windows = 0;
    const auto order = sequence(view, key);
    while (place < slots && taken[order[place]]) ++place;
    const auto refused = table.template insert<W>({key}, i, OnExisting::keep);
    CHECK(refused.size() == (i < slots ? 0 : 1));
    if (i < slots) {
      Key there{};
      typename Table::Value value{};
      CHECK(view.entry(order[place], there, value) && there == key);
      taken[order[place]] = true;
    }
    verb::probes<Table, W>({table.memory.storage, &key, &windows, 1});
    CHECK(windows == (i < slots ? place / kWindowSlots + 1 : view.at.windows));
  }
  // A mark is no place for another key, and no end for a search.
  const Key gone = 1, last = static_cast<Key>((slots - 1) * 11 + 1);
  table.template erase<W>({gone});
  table.template check_find<W>({gone, last});
  CHECK(table.template insert<W>({gone}, 1, OnExisting::keep).size() == 1);
}

/// Inserts by each width what every other finds.
template <class Table, int W>
void found_by_all() {
  using Key = typename Table::Key;
  lockstep::tiles = W >= 16 ? 2 : 4;
  MethodCase<Table> table(90);
  std::mt19937 random(W);
  const auto keys = contended_keys<Key>(random, 60, 70);
  table.template insert<W>(keys, 1, OnExisting::keep);
  lockstep::tiles = 2;
  for_each_width([&]<int Other>() {
    lockstep::tiles = 2;
    table.template check_find<Other>(keys);
  });
}

template <class Table>
using Lists = std::map<typename Table::Key, std::multiset<u64>>;

template <class Table, int W>
void append(MethodMemory<Table>& memory, Lists<Table>& model,
            const std::vector<typename Table::Key>& keys, u64 batch) {
  using Value = typename Table::Value;
  std::vector<Value> values(keys.size());
  std::vector<u64> pending(keys.size());
  u64 reserved = 0;
  for (u64 row = 0; row < keys.size(); ++row) {
    values[row] = static_cast<Value>(batch << 16 | row);
    if (is_reserved(keys[row]))
      ++reserved;
    else
      model[keys[row]].insert(values[row]);
  }
  memory.state.pending = 0;
  verb::append<Table, W>({memory.storage, keys.data(), values.data(), nullptr, nullptr,
                          pending.data(), keys.size(), 0, 0});
  CHECK(memory.state.pending == reserved);
  for (u64 i = 0; i < reserved; ++i) CHECK(is_reserved(keys.at(pending[i])));
}

/// The counts and the values of every key, whatever order they have.
template <class Table, int W>
void check_lists(MethodMemory<Table>& memory, const Lists<Table>& model,
                 std::vector<typename Table::Key> keys) {
  using Value = typename Table::Value;
  std::erase_if(keys, [](auto key) { return is_reserved(key); });
  std::vector<u64> counts(keys.size()), offsets(keys.size());
  verb::count<Table, W>({memory.storage, keys.data(), counts.data(), keys.size()});
  u64 total = 0;
  for (u64 row = 0; row < keys.size(); ++row) {
    const auto at = model.find(keys[row]);
    CHECK(counts[row] == (at == model.end() ? 0 : at->second.size()));
    offsets[row] = total;
    total += counts[row];
  }
  std::vector<Value> values(total);
  verb::gather<Table, W>({memory.storage,
                          keys.data(),
                          offsets.data(),
                          values.data(),
                          {nullptr, nullptr},
                          keys.size()});
  for (u64 row = 0; row < keys.size(); ++row) {
    if (counts[row] == 0) continue;
    const auto from = values.begin() + static_cast<i64>(offsets[row]);
    CHECK(std::multiset<u64>(from, from + static_cast<i64>(counts[row])) == model.at(keys[row]));
  }
}

/// Few keys of many values, so that their slots go over several windows.
template <class Table, int W, int Other>
void lists() {
  using Key = typename Table::Key;
  lockstep::tiles = W == 1 ? 8 : W == 32 ? 2 : 4;
  std::mt19937 random(W);
  MethodMemory<Table> memory(400);
  Lists<Table> model;
  const auto some = [&](u64 n, Key range) { return contended_keys<Key>(random, n, range); };
  append<Table, W>(memory, model, some(120, 3), 1);
  append<Table, Other>(memory, model, some(60, 40), 2);
  check_lists<Table, W>(memory, model, some(30, 60));
  check_lists<Table, Other>(memory, model, {0, 1, 2, 3});
  std::vector<Key> gone = some(12, 12);
  gone[0] = 1;
  std::erase_if(gone, [](auto key) { return is_reserved(key); });
  std::vector<u8> erased(gone.size(), 9);
  const u64 before = memory.state.occupied;
  verb::erase<Table, W>({memory.storage, gone.data(), erased.data(), gone.size()});
  u64 removed = 0;
  for (const Key key : gone) {
    if (model.count(key)) removed += model[key].size();
    model.erase(key);
  }
  CHECK(memory.state.occupied == before - removed && memory.state.erased == removed);
  for (const u8 flag : erased) CHECK(flag <= 1);
  check_lists<Table, W>(memory, model, some(30, 60));
  append<Table, W>(memory, model, some(40, 3), 3);
  check_lists<Table, Other>(memory, model, {0, 1, 2, 3, 4});
}

template <class Key, class Value, Layout layout>
void all(const char* name) {
  using Table = Cops<Key, Value, layout>;
  first_empty_slot<Table, 1>();
  first_empty_slot<Table, 2>();
  first_empty_slot<Table, 4>();
  first_empty_slot<Table, 32>();
  found_by_all<Table, 1>();
  found_by_all<Table, 2>();
  found_by_all<Table, 8>();
  found_by_all<Table, 16>();
  if constexpr (Table::has_value) {
    lists<CopsLists<Key, Value, layout>, 1, 4>();
    lists<CopsLists<Key, Value, layout>, 4, 8>();
    lists<CopsLists<Key, Value, layout>, 32, 2>();
  }
  std::printf("%s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::windows_of_hashes();
  test::all<u32, void, Layout::soa>("u32");
  test::all<u64, void, Layout::soa>("u64");
  test::all<u32, u32, Layout::packed>("u32 -> u32, packed");
  test::all<u32, u32, Layout::aos>("u32 -> u32, aos");
  test::all<u64, u64, Layout::aos>("u64 -> u64, aos");
  test::all<u64, u64, Layout::soa>("u64 -> u64, soa");
}

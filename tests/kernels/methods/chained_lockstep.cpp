/// Chained tables: built by lanes of all tiles, and read by tiles of any width, against a dictionary.
#include <algorithm>
#include <numeric>

#include "method_case.h"

namespace dg::test {
namespace {

template <class Table>
struct ChainedMemory {
  using Key = typename Table::Key;

  std::vector<u64> entries;
  std::vector<u32> ends;
  TableState state = cleared_state();
  ChainedStorage storage;

  /// What the recipe does; the sort is the library's.
  ChainedMemory(const std::vector<Key>& keys, u64 buckets)
      : entries(keys.size() * 2 * sizeof(Key) / 8), ends(buckets) {
    storage = {{0x9e3779b1u, 17}, entries.data(), ends.data(), &state, keys.size(), buckets, 3, 1};
    std::vector<u32> of(keys.size()), sorted;
    chained_buckets<Table>({storage, keys.data(), of.data(), keys.size()});
    std::vector<u64> order(keys.size());
    std::iota(order.begin(), order.end(), u64{0});
    std::stable_sort(order.begin(), order.end(), [&](u64 a, u64 b) { return of[a] < of[b]; });
    for (const u64 row : order) sorted.push_back(of[row]);
    Key* const words = reinterpret_cast<Key*>(entries.data());
    for (u64 place = 0; place < order.size(); ++place) {
      words[2 * place] = keys[order[place]];
      words[2 * place + 1] = static_cast<Key>(order[place]);
    }
    chained_ends({sorted.data(), ends.data(), buckets, sorted.size()});
  }
};

template <class Key, int W>
void contract(u64 buckets) {
  using Lists = ChainedLists<Key, Key>;
  using One = Chained<Key, Key>;
  std::mt19937 random(W);
  const auto keys = contended_keys<Key>(random, 150, 60);
  std::map<Key, std::vector<Key>> model;
  for (u64 row = 0; row < keys.size(); ++row) model[keys[row]].push_back(static_cast<Key>(row));
  ChainedMemory<One> memory(keys, buckets);
  CHECK(memory.ends.back() == keys.size());
  CHECK(std::is_sorted(memory.ends.begin(), memory.ends.end()));

  std::vector<Key> asked;
  for (Key key = 0; key < 70; ++key) asked.push_back(key);
  std::vector<u64> counts(asked.size());
  verb::count<Lists, W>({memory.storage, asked.data(), counts.data(), asked.size()});
  std::vector<u64> offsets(asked.size() + 1);
  for (u64 i = 0; i < asked.size(); ++i) {
    const bool reserved = is_reserved(asked[i]);
    CHECK(counts[i] == (reserved ? 0 : model[asked[i]].size()));
    offsets[i + 1] = offsets[i] + counts[i];
  }
  std::vector<Key> values(offsets.back());
  verb::gather<Lists, W>({memory.storage,
                          asked.data(),
                          offsets.data(),
                          values.data(),
                          {nullptr, nullptr},
                          asked.size()});
  for (u64 i = 0; i < asked.size(); ++i)
    CHECK(std::equal(values.begin() + offsets[i], values.begin() + offsets[i + 1],
                     model[asked[i]].begin()));

  std::vector<Key> firsts(asked.size());
  std::vector<u8> found(asked.size());
  verb::find<One, W>(
      {memory.storage, asked.data(), firsts.data(), found.data(), asked.size(), u64{77}});
  for (u64 i = 0; i < asked.size(); ++i) {
    const auto& held = model[asked[i]];
    CHECK(found[i] == !held.empty());
    CHECK(firsts[i] == (held.empty() ? Key{77} : held.front()));
  }
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  lockstep::tiles = 4;
  for (const u64 buckets : {1, 7, 200}) {
    test::contract<u32, 1>(buckets);
    test::contract<u64, 4>(buckets);
    test::contract<u32, 32>(buckets);
  }
}

/// One contract for every row of kernels/host/methods.inc that has one value a key, by narrow tiles and wide
/// ones: what a dictionary would answer, and what one width inserted, each other finds.
#include "slab_case.h"
#include "supernode_case.h"

namespace dg::test {
namespace {

template <class Table, int W, int Other>
void contract() {
  using Key = typename Table::Key;
  std::mt19937 random(W);
  const u64 n = W >= 16 ? 60 : 150;
  const Key range = 100;
  const auto some = [&](Key below) { return contended_keys<Key>(random, n, below); };
  MethodCase<Table> table(160);
  const auto first = some(range);
  CHECK(table.template insert<W>(first, 1, OnExisting::keep).empty());
  table.template check_find<W>(some(2 * range));
  table.template check_find<Other>(first);
  CHECK(table.template insert<Other>(some(range), 2, OnExisting::overwrite).empty());
  table.template check_find<W>(some(range));
  table.template check_items<W>();
  table.template erase<W>(some(range));
  table.template check_find<Other>(first);
  CHECK(table.template insert<W>(first, 3, OnExisting::keep).empty());
  table.template check_find<W>(some(2 * range));
  table.template erase<Other>(some(range));
  table.template check_items<Other>();
  table.template check_rehash<W>(400);
}

/// Every row counts, whichever creates the key.
template <class Table, int W>
void combines() {
  using Key = typename Table::Key;
  std::mt19937 random(W);
  MethodCase<Table> table(64);
  const auto keys = contended_keys<Key>(random, 60, 9);
  for (u64 batch = 0; batch < 2; ++batch) {
    CHECK(table.template insert<W>(keys, batch, OnExisting::sum).empty());
    table.template check_find<W>(keys);
  }
}

/// Reads what searches read: at least one unit a key, and not more when a key is there.
template <class Table, int W>
void reads() {
  using Key = typename Table::Key;
  MethodCase<Table> table(400);
  std::vector<Key> keys, others;
  for (u64 i = 0; i < 100; ++i) keys.push_back(static_cast<Key>(3 * i));
  for (u64 i = 0; i < 100; ++i) others.push_back(static_cast<Key>(3 * i + 1));
  CHECK(table.template insert<W>(keys, 1, OnExisting::keep).empty());
  u64 found = 0, absent = 0;
  verb::probes<Table, W>({table.memory.storage, keys.data(), &found, keys.size()});
  verb::probes<Table, W>({table.memory.storage, others.data(), &absent, others.size()});
  CHECK(found >= keys.size() && found < 3 * keys.size());
  CHECK(absent < 3 * keys.size());
}

template <class Table>
void all_widths(const char* name) {
  lockstep::tiles = 8;
  contract<Table, 1, 4>();
  combines<Table, 1>();
  reads<Table, 1>();
  lockstep::tiles = 4;
  contract<Table, 4, 32>();
  combines<Table, 4>();
  reads<Table, 4>();
  lockstep::tiles = 2;
  contract<Table, 32, 1>();
  combines<Table, 32>();
  std::printf("%s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

#define DG_STRUCT(...)
#define DG_ROW(...)
#define DG_VERB(...)
#define DG_LISTS(...)
#define DG_KEYS(...)
#define DG_PLAIN(...)
#define DG_OWN(...)
#define DG_OWN_BY_LANE(...)
#define DG_TABLE_READ_BY(Readers, Width, ...) DG_TABLE(Width, __VA_ARGS__)
#define DG_TABLE(Width, ...) dg::test::all_widths<__VA_ARGS__>(#__VA_ARGS__);

int main() {
#include "host/methods.inc"
}

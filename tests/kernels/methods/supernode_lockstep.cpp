/// Super nodes of every size and layout, the stack that they come from, and clean.
#include <set>

#include "supernode_case.h"

namespace dg::test {
namespace {

/// A stack of nodes of 32 bytes, with as many takers at once, or givers, as there are tiles.
void stack_gives_each_node_once() {
  constexpr u64 size = 12, asked = 40;
  NodePoolMemory memory(size, 1);
  const NodeStack stack{memory.pool()};
  std::vector<u32> taken(asked);
  const auto take_all = [&](u64 there) {
    lockstep::for_each_tile<1>(asked, [&](auto, u64 row) { taken[row] = stack.take(); });
    std::set<u32> seen;
    for (const u32 index : taken)
      if (index != kNoNode) CHECK(index < size && seen.insert(index).second);
    // More were asked for than there are; those who came too late got none, and nobody is counted twice.
    CHECK(seen.size() == there && memory.counts[0] == 0);
  };
  take_all(size);
  for (const u64 share : {1, 2, 3}) {
    lockstep::for_each_tile<1>(asked, [&](auto, u64 row) {
      if (taken[row] != kNoNode && taken[row] % share == 0) stack.release(taken[row]);
    });
    take_all(size / share);
    for (u32& index : taken) index = kNoNode;
    for (u32 index = 0; index < size; ++index) taken[index] = index;
  }
  // Free nodes are left alone; more of them are taken in turn.
  const u32* words = reinterpret_cast<const u32*>(memory.nodes.data());
  for (u64 word = 0; word < size * 8; ++word) CHECK(words[word] == ~0u);
  memory.add(5);
  const NodeStack larger{memory.pool()};
  for (u64 i = 0; i < 5; ++i) CHECK(larger.take() == size + i);
  CHECK(larger.take() == kNoNode);
}

template <class Key>
std::vector<Key> numbered_keys(u64 n) {
  std::vector<Key> keys(n);
  for (u64 i = 0; i < n; ++i) keys[i] = static_cast<Key>(i * 7);
  keys.push_back(Mark<Key>::empty);
  keys.push_back(Mark<Key>::erased);
  return keys;
}

/// Long chains, a pool of one that runs dry on the way, nodes that come between, a clean that gives back.
template <class Table, int W>
void chains_grow_and_shrink(u64 log_quarters) {
  using Key = typename Table::Key;
  constexpr u64 buckets = 2;
  MethodCase<Table> table(1);
  auto& memory = table.memory;
  memory.pool = NodePoolMemory(1, log_quarters);
  memory.nodes = memory.pool.empty(buckets);
  memory.storage = {memory.pool.pool(), memory.nodes.data(), &memory.state, buckets, 3};
  const u64 per_node = Table{memory.storage}.slots() - Table::first_slot;
  const u64 n = std::max<u64>(6 * per_node, 20);
  const auto keys = numbered_keys<Key>(n);
  const auto used = [&] {
    u64 nodes = 0;
    for (const u32 each : memory.chains()) nodes += each;
    return nodes;
  };
  const auto least = [&](u64 live) { return (live + per_node - 1) / per_node; };

  const auto pending = table.template insert<W>(keys, 1, OnExisting::keep);
  CHECK(!pending.empty() && used() == buckets + 1);
  table.template check_find<W>(keys);
  memory.add_room();
  std::vector<Key> rest;
  for (const u64 row : pending) rest.push_back(keys[row]);
  CHECK(table.template insert<W>(rest, 2, OnExisting::keep).empty());
  table.template check_find<W>(keys);
  table.template check_items<W>();
  const u64 before = used();
  CHECK(before >= least(n) && before <= least(n) + 1);

  // A clean where nothing was erased changes nothing.
  u64 released = 0;
  verb::flush<Table, 1>({memory.storage, &released, buckets});
  CHECK(released == 0 && used() == before);

  std::vector<Key> gone;
  for (u64 i = 0; i < keys.size(); ++i)
    if (i % 5) gone.push_back(keys[i]);
  table.template erase<W>(gone);
  const u64 live = memory.state.occupied;
  CHECK(memory.state.erased > n / 2 && used() == before);
  table.template check_find<W>(keys);
  verb::flush<Table, 1>({memory.storage, &released, buckets});
  CHECK(memory.state.erased == 0 && released > 0 && used() == before - released);
  CHECK(used() <= least(live) + 1);
  table.template check_find<W>(keys);
  table.template check_items<W>();
  // What came back is empty: chains grow from it as from new nodes.
  CHECK(table.template insert<W>(keys, 3, OnExisting::overwrite).empty());
  table.template check_find<W>(keys);
  table.template check_items<W>();
  table.template erase<W>(keys);
  verb::flush<Table, 1>({memory.storage, &released, buckets});
  CHECK(used() == buckets);
  for (const auto* nodes : {&memory.nodes, &memory.pool.nodes}) {
    const u32* words = reinterpret_cast<const u32*>(nodes->data());
    for (u64 word = 0; word < nodes->size() * 4; ++word) CHECK(words[word] == ~0u);
  }
}

/// All rows at the end of one full chain bring the same key: one of them takes a node.
template <class Table, int W>
void one_key_takes_one_node() {
  using Key = typename Table::Key;
  MethodCase<Table> table(1);
  auto& memory = table.memory;
  memory.pool = NodePoolMemory(64, 2);
  memory.storage.pool = memory.pool.pool();
  memory.storage.buckets = 1;
  std::vector<Key> keys;
  for (u64 i = 0; i < memory.unit_slots; ++i) keys.push_back(static_cast<Key>(i));
  CHECK(table.template insert<W>(keys, 1, OnExisting::keep).empty());
  CHECK(memory.pool.counts[1] == 0);
  CHECK(table.template insert<W>(std::vector<Key>(90, 1000), 2, OnExisting::overwrite).empty());
  CHECK(memory.chains() == std::vector<u32>{2});
  CHECK(memory.pool.counts[0] == 0 && memory.pool.counts[1] == 1);
}

/// The figures: nodes for each key, and for each bucket, of chains that are walked.
void fills_nodes(double length, double for_a_key, double for_a_bucket) {
  using Table = Supernode<u32, u32>;
  const u64 n = 30000;
  const u64 buckets = static_cast<u64>(static_cast<double>(n) / (7 * length)) + 1;
  MethodMemory<Table> memory(buckets, 11, false, n);
  std::vector<u32> keys(n), values(n);
  for (u64 i = 0; i < n; ++i) keys[i] = static_cast<u32>(i * 2654435761u);
  verb::insert<Table, 1>(
      {memory.storage, keys.data(), values.data(), nullptr, nullptr, nullptr, n, 0, 0});
  CHECK(memory.state.pending == 0);
  double nodes = 0;
  for (const u32 each : memory.chains()) nodes += each;
  const auto near = [](double got, double wanted) {
    return got > 0.95 * wanted && got < 1.05 * wanted;
  };
  CHECK(near(nodes / static_cast<double>(n), for_a_key));
  CHECK(near(nodes / static_cast<double>(buckets), for_a_bucket));
}

template <int W>
void one_width(u32 tiles) {
  lockstep::tiles = tiles;
  for (u64 log_quarters = 0; log_quarters < 4; ++log_quarters) {
    if (W == 32 && log_quarters != 1) continue;
    chains_grow_and_shrink<Supernode<u32, u32>, W>(log_quarters);
    if (log_quarters > 0) chains_grow_and_shrink<Supernode<u64, u64>, W>(log_quarters);
    if (log_quarters % 2) continue;
    chains_grow_and_shrink<Supernode<u32, void>, W>(log_quarters);
    chains_grow_and_shrink<Supernode<u64, void>, W>(log_quarters);
  }
  one_key_takes_one_node<Supernode<u32, u32>, W>();
  one_key_takes_one_node<Supernode<u64, u64>, W>();
  std::printf("super nodes, %d lanes: passed\n", W);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg::test;
  dg::lockstep::tiles = 8;
  stack_gives_each_node_once();
  std::printf("stack: passed\n");
  dg::lockstep::tiles = 1;
  fills_nodes(0.5, 0.293, 1.027);
  fills_nodes(0.6, 0.253, 1.064);
  fills_nodes(1.0, 0.201, 1.405);
  std::printf("figures: passed\n");
  one_width<1>(6);
  one_width<4>(4);
  one_width<32>(2);
}

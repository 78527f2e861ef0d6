/// The memory of a table of super nodes: the buckets' own, a pool, and its stack.
#pragma once

#include "method_case.h"

namespace dg::test {

struct NodePoolMemory {
  u64 log_quarters;
  std::vector<Quarter> nodes;
  std::vector<u32> free;
  std::vector<u64> counts{0, 0};

  NodePoolMemory(u64 size, u64 log) : log_quarters(log), nodes(empty(size)), free(size) {}

  std::vector<Quarter> empty(u64 count) const {
    return std::vector<Quarter>(count << log_quarters, Quarter{{~0u, ~0u, ~0u, ~0u}});
  }

  void add(u64 more) {
    counts[1] = std::min<u64>(counts[1], free.size());
    const auto added = empty(more);
    nodes.insert(nodes.end(), added.begin(), added.end());
    free.resize(free.size() + more);
  }

  NodePool pool() { return {nodes.data(), free.data(), counts.data(), free.size(), log_quarters}; }
};

template <class Table>
struct MethodMemory<Table, SupernodeStorage> {
  /// Of a node of 64 bytes.
  static constexpr u64 unit_slots = 4 * Table::per_quarter - Table::first_slot;

  NodePoolMemory pool;
  std::vector<Quarter> nodes;
  TableState state = cleared_state();
  SupernodeStorage storage;

  explicit MethodMemory(u64 rows, u64 seed = 1)
      : MethodMemory(rows / unit_slots + 1, seed, false, 1024) {}

  MethodMemory(u64 buckets, u64 seed, bool, u64 usable, u64 log_quarters = 2)
      : pool(usable, log_quarters), nodes(pool.empty(buckets)) {
    storage = {pool.pool(), nodes.data(), &state, buckets, seed};
  }
  MethodMemory(const MethodMemory&) = delete;

  void add_room() {
    pool.add(1024);
    storage.pool = pool.pool();
  }

  /// The nodes of each chain, walked.
  std::vector<u32> chains() const {
    std::vector<u32> lengths(storage.buckets);
    node_chains({storage, lengths.data(), lengths.size()});
    return lengths;
  }
};

}  // namespace dg::test

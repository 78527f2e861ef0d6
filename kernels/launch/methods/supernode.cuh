/// What tables of super nodes have beside the verbs.
#pragma once

#include "launch/methods/execute.cuh"
#include "launch/methods/flush.cuh"
#include "table/methods/supernode.cuh"

namespace dg {

struct NodeChainArgs {
  SupernodeStorage table;
  u32* nodes;  // of each bucket's chain
  u64 n;       // buckets

  DG_FIELDS(table, nodes, n)
};

/// How long each bucket's chain is. All layouts have the index of the next node in the same place.
DG_KERNEL node_chains(NodeChainArgs args) {
  const NodeChains<u32, void> table{args.table};
  for_each_tile<1>(args.n, [&](auto, u64 bucket) {
    u32 nodes = 1;
    for (u32 next = *table.next_of(table.first_node(bucket)); next != kNoNode; ++nodes)
      next = *table.next_of(table.pool().node(next));
    args.nodes[bucket] = nodes;
  });
}

}  // namespace dg

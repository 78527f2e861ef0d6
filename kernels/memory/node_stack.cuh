/// Nodes that kernels take and give back: DACHash's memory stack (§III-C).
///
/// Indices of nodes that were given back are on a stack, whose top is a counter; nodes that nobody has taken yet
/// are on none: another counter says how many of them are gone, so that an empty stack costs nothing to set up.
/// One addition takes a node, and so does one give it back, however many lanes want one: a list through the free
/// nodes, whose head is swapped, lets one lane of all through at a time. In return no launch does both.
/// Nodes are added between launches: no kernel asks the driver for memory.
///
/// Invariant: every word of a free node is all ones. Whoever gives back a node that it has written to restores
/// that first.
#pragma once

#include "core/atomic.cuh"
#include "core/bucket.cuh"
#include "core/fields.cuh"

namespace dg {

/// The index of no node.
inline constexpr u32 kNoNode = ~0u;

struct NodePool {
  void* nodes;
  u32* free;         // indices of nodes that were given back
  u64* counts;       // how many of these there are, and how many nodes have ever been taken
  u64 size;          // nodes in all
  u64 log_quarters;  // of a node: the binary logarithm of its quarters

  DG_FIELDS(nodes, free, counts, size, log_quarters)
};

struct NodeStack {
  NodePool at;

  DG_FN char* node(u32 index) const {
    return static_cast<char*>(at.nodes) + nbytes_to(index, static_cast<u32>(at.log_quarters));
  }

  DG_FN static u64 nbytes_to(u64 index, u32 log_quarters) {
    return index * kQuarterBytes << log_quarters;
  }

  /// A node, or kNoNode, by one lane.
  DG_FN u32 take() const {
    u64* const given = at.counts;
    if (is_some(atomic_load<Order::relaxed>(given))) {
      const u64 top = atomic_fetch_add<Order::relaxed>(given, ~u64{0});
      if (is_some(top)) return at.free[top - 1];
      // Others were faster.
      atomic_add<Order::relaxed>(given, 1);
    }
    u64* const taken = at.counts + 1;
    // Past the end nobody counts on: the counter is compared with the size, and cannot wrap.
    if (atomic_load<Order::relaxed>(taken) >= at.size) return kNoNode;
    const u64 index = atomic_fetch_add<Order::relaxed>(taken, u64{1});
    return index < at.size ? static_cast<u32>(index) : kNoNode;
  }

  /// By one lane, in a launch in which none takes a node.
  DG_FN void release(u32 index) const {
    at.free[atomic_fetch_add<Order::relaxed>(at.counts, u64{1})] = index;
  }

 private:
  /// Those who came too late have counted below zero.
  DG_FN static bool is_some(u64 count) { return static_cast<i64>(count) > 0; }
};

}  // namespace dg

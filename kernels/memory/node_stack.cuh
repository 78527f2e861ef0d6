/// Nodes that kernels take and give back: DACHash's memory stack (§III-C), as a list through the free nodes.
///
/// The nodes that were given back form a list, whose head is a word of an index and a version. The version
/// counts changes of the head, so a swap fails where others took the same node and gave it back in between.
/// Nodes that nobody has taken yet are on no list: a counter says how many of them are gone, so that an
/// empty stack costs nothing to set up. Nodes are added between launches: no kernel asks the driver for memory.
///
/// Invariant: every word of a free node is all ones but the one that links it to the next free node, which
/// nothing else uses. Whoever gives back a node that it has written to restores that first, in a launch in
/// which nobody takes any.
#pragma once

#include "core/atomic.cuh"
#include "core/bucket.cuh"
#include "core/fields.cuh"

namespace dg {

/// The index of no node.
inline constexpr u32 kNoNode = ~0u;

struct NodePool {
  void* nodes;
  u64* stack;        // the head, and how many nodes have ever been taken
  u64 size;          // nodes in all
  u64 log_quarters;  // of a node: the binary logarithm of its quarters

  DG_FIELDS(nodes, stack, size, log_quarters)
};

/// `link_word`: the word of a free node that has the index of the next one.
template <u32 link_word>
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
    return take([] {});
  }

  /// The same; tests do in `between` what others may do before a swap.
  template <class Between>
  DG_FN u32 take(const Between& between) const {
    u64* const head = at.stack;
    for (u64 seen = atomic_load<Order::acquire>(head); index_in(seen) != kNoNode;) {
      // Of a node that others take meanwhile it may be anything: then the swap fails.
      const u32 next = atomic_load<Order::relaxed>(link_of(index_in(seen)));
      between();
      const u64 found = atomic_swap_if<Order::acquire>(head, seen, head_of(next, seen));
      if (found == seen) return index_in(seen);
      seen = found;
    }
    u64* const taken = at.stack + 1;
    // Past the end nobody counts on: the counter is compared with the size, and cannot wrap.
    if (atomic_load<Order::relaxed>(taken) >= at.size) return kNoNode;
    const u64 index = atomic_fetch_add<Order::relaxed>(taken, u64{1});
    return index < at.size ? static_cast<u32>(index) : kNoNode;
  }

  /// By one lane.
  DG_FN void release(u32 index) const {
    u64* const head = at.stack;
    for (u64 seen = atomic_load<Order::relaxed>(head);;) {
      atomic_store<Order::relaxed>(link_of(index), index_in(seen));
      const u64 found = atomic_swap_if<Order::release>(head, seen, head_of(index, seen));
      if (found == seen) return;
      seen = found;
    }
  }

 private:
  DG_FN u32* link_of(u32 index) const { return reinterpret_cast<u32*>(node(index)) + link_word; }
  DG_FN static u32 index_in(u64 head) { return static_cast<u32>(head); }
  /// The head that follows on another.
  DG_FN static u64 head_of(u32 index, u64 before) { return ((before >> 32) + 1) << 32 | index; }
};

}  // namespace dg

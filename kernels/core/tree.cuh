/// Trees of numbered nodes, as the numbers of their parents: 0 is no node, 1 the root, and a parent's number is
/// below those of its children.
#pragma once

#include "core/fields.cuh"
#include "core/platform.cuh"

namespace dg {

struct Tree {
  const u32* parents;
  u64 nodes;  // the highest number, and one more

  DG_FIELDS(parents, nodes)

  DG_FN bool has(u64 node) const { return node - 1 < nodes - 1; }

  /// The lowest common ancestor of two nodes.
  DG_FN u32 lca(u32 left, u32 right) const {
    while (left != right) {
      // The higher number cannot be an ancestor of the lower one.
      if (left > right)
        left = parents[left];
      else
        right = parents[right];
    }
    return left;
  }

  /// The same of any words: those that are no nodes change nothing, but 0 takes the place of all ones.
  template <class Word>
  DG_FN Word folded(Word held, Word term) const {
    if (held == term) return held;
    if (!has(term)) return held == ~Word{0} ? term : held;
    if (!has(held)) return term;
    return lca(static_cast<u32>(held), static_cast<u32>(term));
  }
};

}  // namespace dg

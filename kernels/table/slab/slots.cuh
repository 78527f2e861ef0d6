/// A slab (SlabHash §III-A, IV-B): 128 bytes, 32 words, of which 30 hold keys or pairs.
///
///   4 + 4 bytes   15 pairs, words 0 … 29
///   keys of 4     30, words 0 … 29;       keys of 8   15
///   8 + 8 bytes    7 pairs, words 0 … 27
///   word 30        of 8 + 8 bytes the ready bits; of a bucket's first slab of a table of several values
///                  a key, a slab near the end of its chain
///   word 31        the address of the next slab
#pragma once

#include "core/hash.cuh"
#include "memory/slab_alloc.cuh"
#include "table/slab/node_slots.cuh"
#include "table/table_state.cuh"

namespace dg {

inline constexpr u32 kLastPart = kSlabQuarters - 1;

/// A table as kernels get it, by value.
struct SlabStorage {
  SlabPool pool;
  void* slabs;  // the first of each bucket
  TableState* state;
  u64 buckets;
  u64 seed;

  DG_FIELDS(pool, slabs, state, buckets, seed)
};

/// `lists`: of a table of several values a key, which has no ready bits: nobody reads while it is filled.
template <class KeyType, class ValueType, bool lists>
struct SlabSlots : NodeSlots<SlabStorage, KeyType, ValueType, 30, !lists> {
  using Own = NodeSlots<SlabStorage, KeyType, ValueType, 30, !lists>;
  using Own::per_quarter;
  using typename Own::Key;
  using typename Own::Slots;
  using typename Own::Value;

  /// M of the paper.
  static constexpr u32 per_slab = 30 * 4 / Slots::nbytes;

  DG_FN static u32* next_of(char* slab) { return reinterpret_cast<u32*>(slab) + 31; }

  /// Makes the words that are no slots look like slots that hold nothing and never will.
  DG_FN static void hide_words(Quarter& last) {
    DG_UNROLL
    for (u32 i = per_slab - kLastPart * per_quarter; i < per_quarter; ++i)
      Slots::put(last, i, Mark<Key>::erased, Value{});
  }
};

}  // namespace dg

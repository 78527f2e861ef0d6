/// Which keys a full bucket has turned away, so that a search for a key that is not there ends early.
#pragma once

#include "core/atomic.cuh"
#include "core/block_atomic.cuh"
#include "core/bucket.cuh"

namespace dg {

/// A few bits for each bucket, of which a key's hash picks one: set when an insert of such a key
/// went on from the bucket because it was full. Relaxed: launches that set bits end no search by them.
///
/// Lines of 64 bytes read for an absent key by simulation, with 0, 1, 2, 4, 8 bits a bucket of eight
/// slots: 1.71, 1.39, 1.25, 1.15, 1.08 at load 0.8; 2.89, 2.09, 1.69, 1.38, 1.20 at 0.9; 5.3, 3.4, 2.4,
/// 1.74, 1.36 at 0.95. Eight bits are 1/64 of the table; docs/decisions/002-overflow-filter.md says what
/// they cost. Buckets of few slots are full more often, so that their filter is read more often: it is
/// kept small enough for the L2 cache.
DG_FN constexpr u32 overflow_bits(u32 slots_per_bucket) { return slots_per_bucket < 8 ? 2 : 8; }

template <u32 per_bucket>
struct OverflowFilter {
  static constexpr u32 per_word = 32 / per_bucket;

  u32* words;

  /// Whether a search for the key goes on beyond `bucket`, which has no EMPTY slot.
  template <Access access>
  DG_FN bool passed(u64 bucket, u32 hash) const {
    return load<access>(bucket) & bit_of(bucket, hash);
  }

  /// Whether any key went on from `bucket`. Then it has no EMPTY slot and never gets one again.
  template <Access access>
  DG_FN bool overflowed(u64 bucket) const {
    return load<access>(bucket) >> shift_of(bucket) & ((1u << per_bucket) - 1);
  }

  /// A key goes on. Asking first whether the bit is set would take longer.
  template <Access access = Access::shared>
  DG_FN void pass(u64 bucket, u32 hash) const {
    if constexpr (access == Access::block)
      block_or(words + bucket / per_word, bit_of(bucket, hash));
    else
      atomic_or<Order::relaxed>(words + bucket / per_word, bit_of(bucket, hash));
  }

 private:
  DG_FN static u32 shift_of(u64 bucket) { return static_cast<u32>(bucket) % per_word * per_bucket; }
  /// Other bits of the hash, whose lower half is given, than those that choose the buckets.
  DG_FN static u32 bit_of(u64 bucket, u32 hash) {
    return 1u << (shift_of(bucket) + (hash >> 16) % per_bucket);
  }
  template <Access access>
  DG_FN u32 load(u64 bucket) const {
    const u32* word = words + bucket / per_word;
    if constexpr (access == Access::frozen)
      return *word;
    else
      return atomic_load<Order::relaxed>(word);
  }
};

}  // namespace dg

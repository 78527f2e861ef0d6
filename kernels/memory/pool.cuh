/// One array that buckets are taken from and never given back to (WarpCore §IV-C).
#pragma once

#include "core/atomic.cuh"
#include "core/platform.cuh"

namespace dg {

/// In device memory, one for each pool. Mirrored in dgpuhash/backend/args.py.
struct PoolState {
  u64 used;     // slots taken, counted from the start of the array
  u64 refused;  // requests that did not fit since Python last set this to 0
};

struct Pool {
  void* slots;
  PoolState* state;
  u64 capacity;  // slots

  static constexpr u64 exhausted = ~0ull;

  /// The first of `count` consecutive slots, or `exhausted`.
  /// Swaps instead of adding, so that a request that does not fit leaves the rest to smaller ones.
  DG_FN u64 take(u64 count) const {
    u64 used = atomic_load<Order::relaxed>(&state->used);
    while (count <= capacity - used) {
      const u64 seen = atomic_swap_if<Order::relaxed>(&state->used, used, used + count);
      if (seen == used) return used;
      used = seen;
    }
    atomic_add<Order::relaxed>(&state->refused, 1);
    return exhausted;
  }
};

}  // namespace dg

/// What the memory allows: only the accesses of an operation, without a table. Benchmarks stand
/// beside them.
#pragma once

#include "core/atomic.cuh"
#include "core/bucket.cuh"
#include "core/fields.cuh"
#include "core/hash.cuh"
#include "core/slot.cuh"
#include "grid/for_each.cuh"

namespace dg {

struct LimitArgs {
  const void* keys;
  void* values;
  void* slots;
  u64 n;
  u64 slot_count;

  DG_FIELDS(keys, values, slots, n, slot_count)
};

/// Streaming copy of 16 bytes a row, again and again where there are more rows than slots. The
/// number of slots is a power of two.
template <int W>
DG_KERNEL limit_copy(LimitArgs args) {
  for_each_tile<W>(args.n, [&](auto, u64 row) {
    const u64 slot = row & (args.slot_count - 1);
    static_cast<Quarter*>(args.values)[slot] = static_cast<const Quarter*>(args.slots)[slot];
  });
}

/// A random aligned read of W * 16 bytes, 16 of them by each lane.
template <int W>
DG_KERNEL limit_gather(LimitArgs args) {
  for_each_tile<W>(args.n, [&](auto tile, u64 row) {
    const u64 line = mulhi(mix(row), args.slot_count);
    // On the CPU one lane reads what W lanes read on a GPU.
    u32 seen = 0;
    for (u32 part = tile.lane(); part < W; part += tile.size) {
      const Quarter quarter = load_quarter<Access::frozen, u64>(
          static_cast<const Quarter*>(args.slots) + line * W + part);
      seen |= quarter.word[0] ^ quarter.word[1] ^ quarter.word[2] ^ quarter.word[3];
    }
    // The memory is zero, so nothing is stored, and the compiler cannot know it.
    if (seen != 0) *static_cast<u64*>(args.values) = row;
  });
}

/// A compare-and-swap of a random word that holds zero: it always succeeds.
template <int W>
DG_KERNEL limit_cas(LimitArgs args) {
  for_each_tile<W>(args.n, [&](auto, u64 row) {
    atomic_swap_if<Order::relaxed>(static_cast<u64*>(args.slots) + mulhi(mix(row), args.slot_count),
                                   u64{0}, u64{0});
  });
}

/// Reads a key, gathers the slot it hashes to, writes the slot's value.
template <class Key, int W>
DG_KERNEL limit_lookup(LimitArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  const auto slot_of = [&](u64 row) {
    return static_cast<const u64*>(args.slots) +
           mulhi(mix(keys[row]), args.slot_count) * (2 * sizeof(Key) / sizeof(u64));
  };
  for_each_tile<W>(
      args.n,
      [&](auto, u64 row) {
        Key value;
        if constexpr (sizeof(Key) == 4)
          value = static_cast<Key>(*slot_of(row) >> 32);
        else
          value = Slot<Key, Key>::value(load_quarter<Access::frozen, u64>(slot_of(row)), 0);
        static_cast<Key*>(args.values)[row] = value;
      },
      [&](u64 row) { prefetch(slot_of(row)); });
}

/// Reads a pair, reads the 32-byte sector it hashes to, swaps the pair into a slot there.
template <class Key, int W>
DG_KERNEL limit_insert(LimitArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  constexpr u32 sector_slots = 16 / sizeof(Key);
  const auto sector_of = [&](u64 row) {
    return static_cast<Quarter*>(args.slots) +
           2 * mulhi(mix(keys[row]), args.slot_count / sector_slots);
  };
  for_each_tile<W>(
      args.n,
      [&](auto, u64 row) {
        const Key key = keys[row];
        const Key value = static_cast<const Key*>(args.values)[row];
        Quarter* sector = sector_of(row);
        const Quarter low = load_quarter<Access::shared, u64>(sector);
        const Quarter high = load_quarter<Access::shared, u64>(sector + 1);
        const bool upper = key & 1;
        u64* slot = reinterpret_cast<u64*>(sector + upper);
        const u64 first = upper ? Slot<u64, u64>::key(high, 0) : Slot<u64, u64>::key(low, 0);
        if constexpr (sizeof(Key) == 4) {
          atomic_swap_if<Order::relaxed>(slot, first, Slot<Key, Key>::word(key, value));
        } else {
#if DG_WIDE_SWAP
          u64 old_first = first;
          u64 old_second = upper ? Slot<u64, u64>::value(high, 0) : Slot<u64, u64>::value(low, 0);
          atomic_swap_pair_if(slot, old_first, old_second, key, value);
#else
          atomic_swap_if<Order::relaxed>(slot, first, key);
          atomic_store<Order::relaxed>(slot + 1, value);
#endif
        }
      },
      [&](u64 row) { prefetch(sector_of(row)); });
}

}  // namespace dg

/// Keys of 16 bytes where no compare-and-swap is as wide: a slot is claimed first, then written, then
/// published. Each slot has two bits for that, behind the words of the overflow filter. Who meets a slot
/// that is claimed and not yet published waits for the few stores of its claimer; nobody takes a lock
/// beyond a slot of its own, and no claimer waits.
///
/// The bits are read beside writers alone: launches that only read have what stands in the slots.
#pragma once

#include "core/atomic.cuh"
#include "core/bucket.cuh"
#include "core/outcome.cuh"
#include "core/slot.cuh"

namespace dg {

/// Whether slots of these keys are claimed before they are written.
template <class Key>
inline constexpr bool kClaimed = sizeof(Key) == 16 && !DG_KEY_SWAP;

/// Words of the claims of so many buckets, as dgpuhash/backend/constants.py counts them.
DG_FN constexpr u64 claim_words(u64 buckets) { return (buckets + 3) / 4; }

struct Claims {
  u32* words;

  /// The quarter of a slot that other tiles may be writing.
  DG_FN Quarter settled(u64 slot, const u128* at) const {
    for (u32 round = 0;; ++round) {
      const u32 seen = state(slot);
      if (seen == kFree) return as_quarter(Mark<u128>::empty);
      if (seen == kErased) return as_quarter(Mark<u128>::erased);
      if (seen == kPublished) {
        const u64 low = atomic_load<Order::acquire>(&at->low);
        const u64 high = atomic_load<Order::acquire>(&at->high);
        // Else its key is being erased.
        if (state(slot) == kPublished) return as_quarter({low, high});
      }
      back_off(round);
    }
  }

  /// created, or refused: somebody else has the slot, maybe for the same key.
  template <class Write>
  DG_FN Outcome publish(u64 slot, u128* at, u128 key, const Write& write_value) const {
    const u32 bit = kClaimedBit << shift_of(slot);
    if (atomic_fetch_or<Order::acquire>(word_of(slot), bit) & bit) return Outcome::refused;
    store(at, key);
    write_value();
    atomic_fetch_or<Order::release>(word_of(slot), kWrittenBit << shift_of(slot));
    return Outcome::created;
  }

  /// Leaves `mark` in the slot of a key. One lane of those that erase the same key gets true, and only it
  /// calls `write_value`.
  template <class Write>
  DG_FN bool withdraw(u64 slot, u128* at, u128 mark, const Write& write_value) const {
    if (!move<Order::acquire>(slot, kPublished, kClaimedBit)) return false;
    store(at, mark);
    write_value();
    move<Order::release>(slot, kClaimedBit, mark == Mark<u128>::erased ? kErased : kFree);
    return true;
  }

 private:
  static constexpr u32 kClaimedBit = 1, kWrittenBit = 2;
  static constexpr u32 kFree = 0, kErased = kWrittenBit, kPublished = kClaimedBit | kWrittenBit;

  DG_FN u32* word_of(u64 slot) const { return words + slot / 16; }
  DG_FN static u32 shift_of(u64 slot) { return static_cast<u32>(slot) % 16 * 2; }
  DG_FN u32 state(u64 slot) const {
    return atomic_load<Order::acquire>(word_of(slot)) >> shift_of(slot) & 3;
  }

  /// Whether the slot was in one state, and is in the other now.
  template <Order order>
  DG_FN bool move(u64 slot, u32 from, u32 to) const {
    const u32 shift = shift_of(slot);
    u32 held = atomic_load<Order::relaxed>(word_of(slot));
    while ((held >> shift & 3) == from) {
      const u32 seen = atomic_swap_if<order>(word_of(slot), held, held ^ (from ^ to) << shift);
      if (seen == held) return true;
      held = seen;
    }
    return false;
  }

  DG_FN static void store(u128* at, u128 key) {
    atomic_store<Order::relaxed>(&at->low, key.low);
    atomic_store<Order::relaxed>(&at->high, key.high);
  }

  DG_FN static Quarter as_quarter(u128 key) {
    Quarter quarter;
    Slot<u128, void>::put(quarter, 0, key, NoValue{});
    return quarter;
  }
};

}  // namespace dg

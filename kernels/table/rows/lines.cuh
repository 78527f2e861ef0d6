/// Where keys stand in lines of 64 bytes of slots.
#pragma once

#include "core/bucket.cuh"
#include "core/slot.cuh"

namespace dg {

/// Up to 256 MiB of lines stay in the L2 cache; those of larger tables leave it first, so that what is read
/// beside them stays. Measured on an H200; docs/decisions/005-cache-policy.md has the figures.
inline constexpr u64 kStayingLines = 1 << 22;

template <class SlotType>
struct Lines {
  using Slots = SlotType;
  using Key = typename Slots::Key;
  using Value = typename Slots::Value;

  /// Where in a quarter a key and the first EMPTY slot stand; `per_quarter` where there is none.
  struct Sight {
    u32 hit;
    u32 gap;
  };

  /// Whether a line has a key, and an EMPTY slot; the slot of the key, or else of the first EMPTY one, by
  /// its number, or the value of a key in slots with values.
  struct Seen {
    bool hit;
    bool gap;
    u64 slot;
    Value value;
  };

  DG_FN static Sight scan(const Quarter& seen, Key key) {
    Sight sight{Slots::per_quarter, Slots::per_quarter};
    DG_UNROLL
    for (u32 i = Slots::per_quarter; i-- > 0;) {
      const Key found = Slots::key(seen, i);
      if (found == key) sight.hit = i;
      if (found == Mark<Key>::empty) sight.gap = i;
    }
    return sight;
  }

  /// What stands in each lane's own line, of its own key. Groups of four lanes read the lines of their four
  /// keys together, a quarter each, and votes of the whole tile tell what is in all of them: those of parts
  /// of a warp would cost ten instructions each. With `places` the slot is told, else the value where the
  /// slots have one.
  template <bool places, Access access, class Lanes>
  DG_FN static Seen look(Lanes tile, const void* slots, Key key, u64 line) {
    return look_by<places>(tile, key, line, [&](u64 each, u32 part) {
      return load_quarter<access, typename Slots::Unit>(static_cast<const char*>(slots) +
                                                        each * kBucketBytes + part * kQuarterBytes);
    });
  }

  /// The same; `load(line, part)` reads a quarter.
  template <bool places, class Lanes, class Load>
  DG_FN static Seen look_by(Lanes tile, Key key, u64 line, const Load& load) {
    static_assert(Lanes::size >= kQuarters);
    const u32 part = tile.lane() % kQuarters, home = tile.lane() - part;
    Quarter seen[kQuarters];
    DG_UNROLL
    for (u32 turn = 0; turn < kQuarters; ++turn)
      seen[turn] = load(tile.shuffle(line, home + turn), part);
    u32 hits = 0, gaps = 0;
    Sight sight[kQuarters];
    DG_UNROLL
    for (u32 turn = 0; turn < kQuarters; ++turn) {
      sight[turn] = scan(seen[turn], tile.shuffle(key, home + turn));
      const u32 hit = tile.ballot(sight[turn].hit < Slots::per_quarter);
      const u32 gap = tile.ballot(sight[turn].gap < Slots::per_quarter);
      if (part == turn) hits = hit, gaps = gap;
    }
    constexpr u32 group = (1u << kQuarters) - 1;
    hits = hits >> home & group;
    gaps = gaps >> home & group;
    Seen told{hits != 0, gaps != 0, 0, Value{}};
    const u32 wanted = !places || hits ? hits : gaps;
    const u32 there = wanted ? lowest_one(wanted) : part;
    const u64 first = line * Slots::per_bucket + there * Slots::per_quarter;
    // What the lane there knows, and no more of it than is needed.
    DG_UNROLL
    for (u32 turn = 0; turn < kQuarters; ++turn) {
      const u32 index =
          sight[turn].hit < Slots::per_quarter || !places ? sight[turn].hit : sight[turn].gap;
      if constexpr (!places && Slots::paired) {
        const Value value = tile.shuffle(Slots::value_at(seen[turn], index), home + there);
        if (part == turn) told.value = value;
      } else {
        const u32 in_quarter = Slots::per_quarter > 1 ? tile.shuffle(index, home + there) : 0;
        if (part == turn) told.slot = first + in_quarter;
      }
    }
    return told;
  }
};

}  // namespace dg

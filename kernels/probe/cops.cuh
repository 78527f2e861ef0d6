/// Which window is next: COPS (WarpCore §IV-B2). Windows of 32 slots are read from a line that the hash
/// chooses, in a circle; from window to window goes double hashing. A prime number of windows makes any
/// step visit them all.
#pragma once

#include "core/bucket.cuh"
#include "core/hash.cuh"

namespace dg {

inline constexpr u32 kWindowSlots = 32;

/// The windows of a hash, and in which line of 64 bytes each reading of them starts. The order of slots is
/// the same whatever the width of the tile.
///
/// By simulation with eight slots a line, a search starts anew 1.15, 1.36 and 1.61 lines to find a key at load
/// 0.8, 0.9 and 0.95; from any slot it would take 1.26, 1.51 and 1.81, and from the window's first one 2.2, 2.5
/// and 2.8. How many windows it reads does not depend on that: 1.013, 1.05 and 1.10, for absent keys 1.16, 1.66
/// and 2.7.
struct CopsProbe {
  u64 window;

  DG_FN CopsProbe(u64 windows, u64 hash) : window(mulhi(hash, windows)) {}

  /// The first quarter that is read of a window of so many, a power of two.
  DG_FN static u32 first_quarter(u64 hash, u32 quarters) {
    return static_cast<u32>(hash >> 32) * kQuarters & (quarters - 1);
  }

  /// Other bits than those that choose the window choose the step.
  DG_FN void next(u64 windows, u64 hash) {
    window += 1 + ((hash & 0xffffffffull) * (windows - 1) >> 32);
    if (window >= windows) window -= windows;
  }
};

}  // namespace dg

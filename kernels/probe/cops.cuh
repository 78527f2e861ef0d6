/// Cooperative probing, WarpCore §IV-B: linear inside a window of eight buckets, double hashing
/// between windows.
#pragma once

#include "core/platform.cuh"

namespace dg {

inline constexpr u32 kWindowBuckets = 8;

/// The bucket numbers visited for a hash, the same sequence for every tile width: a tile of 32
/// lanes reads a window at once, one of four lanes a bucket, narrower ones a bucket in several
/// steps. The number of windows is prime (or 1), so that every step size visits every window.
template <u32 Width>
struct Cops {
  static constexpr u32 buckets_at_once = Width < 4 ? 1 : Width / 4;

  u64 windows;
  u64 hash;
  u64 window;
  u64 visited = 0;  // windows behind us
  u32 offset = 0;   // buckets of this window behind us

  DG_FN Cops(u64 window_count, u64 key_hash)
      : windows(window_count), hash(key_hash), window(mulhi(key_hash, window_count)) {}

  DG_FN bool ended() const { return visited == windows; }

  /// The bucket that lane `lane` reads now; lower lanes read earlier buckets of the sequence.
  DG_FN u64 bucket(u32 lane) const {
    const u32 start = static_cast<u32>(hash);
    return window * kWindowBuckets + ((start + offset + lane / 4) & (kWindowBuckets - 1));
  }

  DG_FN void next() {
    offset += buckets_at_once;
    if (offset < kWindowBuckets) return;
    offset = 0;
    ++visited;
    // The step is in [1, windows - 1] and comes from other bits than the first window; computed
    // here because few searches leave their first window.
    if (windows > 1) {
      window += 1 + mulhi(hash * 0x9e3779b97f4a7c15ull, windows - 1);
      if (window >= windows) window -= windows;
    }
  }
};

}  // namespace dg

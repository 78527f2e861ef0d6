/// Cooperative probing, WarpCore §IV-B: linear inside a window, double hashing between windows.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// A window is one bucket of 64 bytes. Wider ones cluster: at load 0.8 with eight slots a bucket,
/// windows of 1, 2, 4, 8 buckets cost 1.10, 1.13, 1.15, 1.15 lines for a key that is there
/// and 1.70, 1.93, 2.15, 2.28 for one that is not; at load 0.95 1.35 to 1.74 and 5.1 to 11.4.
inline constexpr u32 kWindowBuckets = 1;

/// The bucket numbers visited for a hash, the same sequence for every tile width: four lanes read a
/// bucket, narrower tiles a bucket in several steps, wider ones several buckets of the sequence at
/// once. The number of windows is prime (or 1), so that every step size visits every window.
template <u32 Width>
struct Cops {
  static constexpr u32 buckets_at_once = Width < 4 ? 1 : Width / 4;

  u64 windows;
  u64 hash;
  u64 window;
  u32 visited = 0;  // windows behind us; their number is reached only in a table without a gap
  u32 offset = 0;   // buckets of this window behind us

  DG_FN Cops(u64 window_count, u64 key_hash)
      : windows(window_count), hash(key_hash), window(mulhi(key_hash, window_count)) {}

  /// Wide tiles may have read buckets twice by then, later lanes again what earlier ones did:
  /// harmless.
  DG_FN bool ended() const { return visited >= windows; }

  /// The bucket that lane `lane` reads now; lower lanes read earlier buckets of the sequence.
  DG_FN u64 bucket(u32 lane) const {
    const u32 place = offset + lane / 4;
    u64 mine = window;
    if constexpr (buckets_at_once > kWindowBuckets)
      for (u32 ahead = place / kWindowBuckets; ahead > 0; --ahead) mine = following(mine);
    const u32 start = static_cast<u32>(hash);
    return mine * kWindowBuckets + ((start + place) & (kWindowBuckets - 1));
  }

  DG_FN void next() {
    for (offset += buckets_at_once; offset >= kWindowBuckets; offset -= kWindowBuckets) {
      ++visited;
      window = following(window);
    }
  }

 private:
  /// The step is in [1, windows - 1] and comes from other bits than the first window; computed here
  /// because few searches leave their first window.
  DG_FN u64 following(u64 from) const {
    const u64 to = from + 1 + mulhi(hash * 0x9e3779b97f4a7c15ull, windows - 1);
    return to >= windows ? to - windows : to;
  }
};

}  // namespace dg

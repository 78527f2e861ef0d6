/// Which bucket is next: cooperative probing (WarpCore §IV-B) with windows of one bucket, by double
/// hashing that stays near home. Buckets are grouped into segments of a power of two of buckets.
///
/// Invariant: the first bucket is monotone in the hash, so any run of segments holds the keys of one
/// range of hashes, and a batch partitioned by the top bits of its hashes is partitioned by region
/// of the table.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// Of the bucket before which a stay in a segment of 2^shift buckets has `steps` others; `first` is the
/// sequence's first bucket, `low` the lower half of the hash.
DG_FN u32 place_in_segment(u64 first, u32 low, u32 steps, u32 shift) {
  return (static_cast<u32>(first) + steps * (low | 1)) & ((1u << shift) - 1);
}

/// A stay has 2^this buckets.
DG_FN u32 stay_shift_of(u32 segment_shift) {
  return segment_shift > 7 ? segment_shift - 5 : segment_shift < 2 ? segment_shift : 2;
}

/// The bucket numbers visited for a hash, the same sequence for every tile width: four lanes read a
/// bucket, narrower tiles a bucket in several steps, wider ones several buckets of the sequence at
/// once.
///
/// A stay of a few buckets in the first segment, an odd step apart, is followed by a stay in each
/// other segment in turn, then by a second round of stays, and so on: every bucket is visited once.
/// By simulation with eight slots a bucket, segments of 1024 buckets and stays of 32 cost what double
/// hashing over the whole table costs (1.10, 1.22, 1.36 lines for a key that is there at load 0.8,
/// 0.9, 0.95), and 2e-5 of the keys stand outside of their segment at load 0.95, 3e-3 at 0.99. There
/// one segment of ten is full; staying until it is would cost 400 lines for an absent key.
template <u32 Width>
struct SegmentedProbe {
  static constexpr u32 buckets_at_once = Width < 4 ? 1 : Width / 4;

  u64 buckets;
  u64 first;
  u32 shift;        // a segment has 2^shift buckets
  u32 low;          // of the hash: other bits than those that choose the first bucket
  u32 visited = 0;  // buckets behind us; their number is reached only in a table without a gap

  DG_FN SegmentedProbe(u64 bucket_count, u64 segment_shift, u64 hash)
      : buckets(bucket_count),
        first(mulhi(hash, bucket_count)),
        shift(static_cast<u32>(segment_shift)),
        low(static_cast<u32>(hash)) {}

  /// Wide tiles may have read buckets twice by then, later lanes again what earlier ones did:
  /// harmless.
  DG_FN bool ended() const { return visited >= buckets; }

  /// The bucket that lane `lane` reads now; lower lanes read earlier buckets of the sequence.
  DG_FN u64 bucket(u32 lane) const { return in_order(visited + lane / 4); }

  DG_FN void next() { visited += buckets_at_once; }

  /// The bucket before which the sequence has `steps` others.
  DG_FN u64 in_order(u32 steps) const {
    if (steps == 0) return first;
    const u32 stay = stay_shift();
    u32 segment = static_cast<u32>(first >> shift);
    if (steps >> stay) {
      const u32 segments = static_cast<u32>(buckets >> shift), left = segments - segment;
      const u32 turn = (steps >> stay) % segments, round = (steps >> stay) / segments;
      segment = turn < left ? segment + turn : turn - left;
      // Each round takes the next steps of every segment.
      steps = ((turn + round) << stay) | (steps & ((1u << stay) - 1));
    }
    return static_cast<u64>(segment) << shift | place_in_segment(first, low, steps, shift);
  }

 private:
  DG_FN u32 stay_shift() const { return stay_shift_of(shift); }
};

}  // namespace dg

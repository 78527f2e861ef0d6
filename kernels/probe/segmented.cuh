/// Which bucket is next: cooperative probing (WarpCore §IV-B) with windows of one bucket, by double
/// hashing that stays near home. Buckets are grouped into segments of a power of two of buckets.
///
/// Invariant: the first bucket is monotone in the hash, so any run of segments holds the keys of one
/// range of hashes, and a batch partitioned by the top bits of its hashes is partitioned by region
/// of the table.
#pragma once

#include "core/platform.cuh"

namespace dg {

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
  u32 shift;        // a segment has 2^shift buckets
  u32 segment;      // of the first bucket
  u32 place;        // of the first bucket in its segment
  u32 low;          // of the hash: other bits than those that choose the first bucket
  u32 visited = 0;  // buckets behind us; their number is reached only in a table without a gap

  DG_FN SegmentedProbe(u64 bucket_count, u64 segment_shift, u64 hash)
      : buckets(bucket_count), shift(static_cast<u32>(segment_shift)), low(static_cast<u32>(hash)) {
    const u64 first = mulhi(hash, bucket_count);
    segment = static_cast<u32>(first >> shift);
    place = static_cast<u32>(first) & ((1u << shift) - 1);
  }

  /// Wide tiles may have read buckets twice by then, later lanes again what earlier ones did:
  /// harmless.
  DG_FN bool ended() const { return visited >= buckets; }

  /// The bucket that lane `lane` reads now; lower lanes read earlier buckets of the sequence.
  DG_FN u64 bucket(u32 lane) const {
    const u32 stay = stay_shift();
    u32 steps = visited + lane / 4;
    u32 at = segment;
    if (steps >> stay) {
      const u32 segments = static_cast<u32>(buckets >> shift);
      const u32 turn = (steps >> stay) % segments, round = (steps >> stay) / segments;
      at = turn < segments - segment ? segment + turn : turn - (segments - segment);
      // Each round takes the next steps of every segment.
      steps = ((turn + round) << stay) | (steps & ((1u << stay) - 1));
    }
    return static_cast<u64>(at) << shift | ((place + steps * (low | 1)) & ((1u << shift) - 1));
  }

  DG_FN void next() { visited += buckets_at_once; }

 private:
  DG_FN u32 stay_shift() const { return shift > 7 ? shift - 5 : shift < 2 ? shift : 2; }
};

}  // namespace dg

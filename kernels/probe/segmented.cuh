/// Which bucket is next: cooperative probing (WarpCore §IV-B) with windows of one bucket, by double
/// hashing that stays near home. Buckets are grouped into segments of a power of two of buckets.
///
/// Invariant: the first bucket is monotone in the hash, so any run of segments holds the keys of one
/// range of hashes, and a batch partitioned by the top bits of its hashes is partitioned by region
/// of the table.
#pragma once

#include "core/hash.cuh"

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

/// Whether the bucket before which a sequence has `steps` others comes after its first stay.
DG_FN bool strays(u32 steps, u64 segment_shift) {
  return steps >> stay_shift_of(static_cast<u32>(segment_shift)) != 0;
}

/// The bucket numbers visited for a hash, the same sequence for every tile width: four lanes read a
/// bucket, narrower tiles a bucket in several steps, wider ones several buckets of the sequence at
/// once.
///
/// A stay of a few buckets in the first segment, an odd step apart, is followed by stays all over the
/// table, an odd stride of segments apart, where a second hash says: keys whose hashes are close
/// together, whoever chose them, fill their first segment and then part. Rounds of stays visit every
/// bucket. What is visited twice was full the first time, and still is.
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
  u32 visited = 0;  // buckets behind us

  DG_FN SegmentedProbe(u64 bucket_count, u64 segment_shift, u64 hash)
      : buckets(bucket_count),
        first(mulhi(hash, bucket_count)),
        shift(static_cast<u32>(segment_shift)),
        low(static_cast<u32>(hash)) {}

  /// Whether every bucket was visited; wide tiles may have read some twice by then, later lanes again
  /// what earlier ones did: harmless.
  DG_FN bool ended() const { return visited >= buckets && visited >= steps_of_all(); }

  /// The bucket that lane `lane` reads now; lower lanes read earlier buckets of the sequence. `hash`
  /// gives the hash anew: few keys want it again, and it takes registers.
  template <class Hash>
  DG_FN u64 bucket(u32 lane, const Hash& hash) const {
    return in_order(visited + lane / 4, hash);
  }

  DG_FN void next() { visited += buckets_at_once; }

  /// The bucket before which the sequence has `steps` others.
  template <class Hash>
  DG_FN u64 in_order(u32 steps, const Hash& hash) const {
    if (steps == 0) return first;
    if (!strays(steps, shift))
      return first >> shift << shift | place_in_segment(first, low, steps, shift);
    const u64 word = mix(hash() + 0x9e3779b97f4a7c15ull);
    const u32 stay = stay_shift_of(shift), stays = (steps >> stay) - 1, turns = turn_shift();
    const u32 turn = stays & ((1u << turns) - 1), round = stays >> turns;
    // Of as many places as the next power of two has, each stands for one segment.
    const u32 place = (static_cast<u32>(word >> 32) + turn * (static_cast<u32>(word >> 12) | 1)) &
                      ((1u << turns) - 1);
    const u64 segment = static_cast<u64>(place) * (buckets >> shift) >> turns;
    // Each round takes the next steps of every segment.
    const u32 within = round << stay | (steps & ((1u << stay) - 1));
    return segment << shift | place_in_segment(word, low, within, shift);
  }

 private:
  /// The logarithm of the segments, rounded up.
  DG_FN u32 turn_shift() const {
    const u32 segments = static_cast<u32>(buckets >> shift);
    return segments < 2 ? 0 : highest_one(segments - 1) + 1;
  }

  DG_FN u64 steps_of_all() const {
    return (1ull << stay_shift_of(shift)) + (1ull << (turn_shift() + shift));
  }
};

}  // namespace dg

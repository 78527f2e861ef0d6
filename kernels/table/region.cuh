/// A region of an open-addressing table, worked on in a block's shared memory: the second level of
/// the thesis' two-level tables (Alcantara 2011, ch. 5), whose first level is the partition of the
/// batch by region (DACHash's reorder, §IV).
///
/// Keys follow the table's own probe sequence, as far as it stays in the region, so that launches
/// that know no regions find them. A lane looks at a whole bucket before it takes a slot there, from
/// 16 bytes on that the key's hash chooses: equal keys want the same slot, and lanes of a warp read
/// different banks. Keys stand apart from the values, which nobody looks at.
#pragma once

#include "core/block.cuh"
#include "core/block_atomic.cuh"
#include "table/open.cuh"

namespace dg {

/// A region has 2^kRegionShift buckets, 64 KiB; half of that on GPUs whose blocks have no more than 64
/// KiB. As in dgpuhash/backend/constants.py.
#if DG_GPU && __CUDA_ARCH__ < 800
inline constexpr u32 kRegionShift = 9;
#else
inline constexpr u32 kRegionShift = 10;
#endif
inline constexpr u32 kRegionBuckets = 1u << kRegionShift;

/// Rows that a block puts off; further ones are left. A few more, and a multiprocessor of an H200 would
/// not have three blocks of every layout.
inline constexpr u32 kLaterRows = 2 * kRegionBuckets - 64;

template <class KeyType, class ValueType>
struct RegionOf {
  /// Shared memory of a block.
  template <class Block>
  struct Memory {
    using Slots = Slot<KeyType, ValueType>;
    static constexpr u32 slots = kRegionBuckets * Slots::per_bucket;
    static constexpr u32 filter_words = kRegionBuckets * overflow_bits(Slots::per_bucket) / 32;
    static constexpr u32 slot_words = slots / 32;

    alignas(kQuarterBytes) KeyType keys[slots];
    typename Slots::Value values[Slots::paired ? slots : 1];
    u32 overflow[filter_words];
    u32 created[slot_words];  // a bit for each slot that a lane has taken
    u32 created_count;
    u32 later_count, later_taken;  // rows whose first bucket was full, and those taken up again
    u32 later[kLaterRows];
  };
};

/// Where a key's walk stands: its hash, of which no more than this is needed, and the buckets behind.
struct RegionWalk {
  u32 first;  // where it begins, counted from the region's first bucket
  u32 low;    // of the hash
  u32 visited;
};

/// What one bucket means for a key: as `Outcome`, or the walk goes on.
enum class Step : u32 { refused, existed, created, on };

/// The first `buckets` of a region's memory stand for the table's from `first` on.
template <class KeyType, class ValueType, class Memory>
struct OpenRegion {
  using Table = OpenTable<KeyType, ValueType>;
  using Slots = typename Table::Slots;
  using Key = typename Table::Key;
  using Value = typename Table::Value;

  Table table;
  Memory& memory;
  u64 first;
  u32 buckets;
  bool blank;  // nothing was stored in the table before this launch

  DG_FN auto filter() const {
    return OverflowFilter<overflow_bits(Slots::per_bucket)>{memory.overflow};
  }

  /// The table has fewer than 2^32 buckets.
  DG_FN RegionWalk begin(Key key) const {
    const u64 hash = hash_key(key, table.at.seed);
    const u32 bucket = owner_of_hash(hash, static_cast<u32>(table.at.buckets));
    return {bucket - static_cast<u32>(first), static_cast<u32>(hash), 0};
  }

  /// Whether a bucket, counted from the region's first, belongs to the region.
  DG_FN bool has(u32 bucket) const { return bucket < buckets; }

  /// Stores the pair in the walk's bucket unless the key is there; the walk goes on from a full bucket,
  /// and stays where another key took the slot.
  DG_FN Step step(RegionWalk& walk, Key key, Value value) const {
    const u32 bucket = bucket_of(walk);
    const u32 gap = find(bucket, walk.low >> 24, key);
    if (gap == found) return Step::existed;
    if (gap < Slots::per_bucket) return publish(bucket * Slots::per_bucket + gap, key, value);
    filter().template pass<Access::block>(bucket, walk.low);
    ++walk.visited;
    const bool stays = walk.visited >> stay_shift_of(static_cast<u32>(table.at.segment_shift)) == 0;
    return stays && has(bucket_of(walk)) ? Step::on : Step::refused;
  }

 private:
  static constexpr u32 found = ~0u;

  /// As `SegmentedProbe` in its first stay; regions begin where segments do, or the other way round.
  DG_FN u32 bucket_of(const RegionWalk& walk) const {
    const u32 shift = static_cast<u32>(table.at.segment_shift);
    const u32 begin = walk.first + static_cast<u32>(first);
    return (begin >> shift << shift | place_in_segment(begin, walk.low, walk.visited, shift)) -
           static_cast<u32>(first);
  }

  /// The first EMPTY slot of a bucket, from the 16 bytes `turn` on; `found` where the key is there, and
  /// `per_bucket` where neither is.
  DG_FN u32 find(u32 local, u32 turn, Key key) const {
    constexpr u32 per_part = kQuarterBytes / sizeof(Key), parts = Slots::per_bucket / per_part;
    const Key* const keys = memory.keys + local * Slots::per_bucket;
    u32 gap = Slots::per_bucket;
    bool hit = false;
    DG_UNROLL
    for (u32 step = 0; step < parts; ++step) {
      const u32 part = (turn + step) % parts;
      const Quarter seen = load_quarter<Access::block, Key>(keys + part * per_part);
      const auto sight = OpenTable<Key, void>::scan(seen, key);
      hit = hit || sight.hit < per_part;
      if (sight.gap < per_part && gap == Slots::per_bucket) gap = part * per_part + sight.gap;
    }
    return hit ? found : gap;
  }

  /// A bit of `created` stands for the right to write a slot: one lane of those that saw it EMPTY gets
  /// it, and the others look again, until they see its key. Compare-and-swaps in shared memory cost
  /// more.
  DG_FN Step publish(u32 slot, Key key, Value value) const {
    const u32 bit = 1u << slot % 32;
    if (block_fetch_or(memory.created + slot / 32, bit) & bit) return Step::on;
    block_store(memory.keys + slot, key);
    // Nobody reads values before the block's next barrier.
    if constexpr (Slots::paired)
      memory.values[slot] = value;
    else if constexpr (Slots::has_value)
      static_cast<Value*>(table.at.values)[first * Slots::per_bucket + slot] = value;
    return Step::created;
  }
};

/// The region's words of the overflow filter, and bits for its slots.
template <class Region>
DG_FN u64 filter_word(const Region& region) {
  return region.first * overflow_bits(Region::Slots::per_bucket) / 32;
}
template <class Region>
DG_FN u32 filter_words(const Region& region) {
  return (region.buckets * overflow_bits(Region::Slots::per_bucket) + 31) / 32;
}
template <class Region>
DG_FN u32 slot_words(const Region& region) {
  return (region.buckets * Region::Slots::per_bucket + 31) / 32;
}

/// Words that are moved together.
template <class Word, u32 number>
struct alignas(number * sizeof(Word)) Words {
  Word of[number];
};

/// A quarter of a bucket, from the keys and values of a region and to them.
template <class Region>
struct RegionQuarter {
  using Slots = typename Region::Slots;
  using Keys = Words<typename Region::Key, Slots::per_quarter>;
  using Values = Words<typename Region::Value, Slots::per_quarter>;

  const Region& region;
  u32 number;

  DG_FN Keys& keys() const { return reinterpret_cast<Keys*>(region.memory.keys)[number]; }
  DG_FN Values& values() const { return reinterpret_cast<Values*>(region.memory.values)[number]; }

  DG_FN void load(const Quarter& from) const {
    Keys keys_there;
    DG_UNROLL
    for (u32 i = 0; i < Slots::per_quarter; ++i) keys_there.of[i] = Slots::key(from, i);
    keys() = keys_there;
    if constexpr (Slots::paired) {
      Values values_there;
      DG_UNROLL
      for (u32 i = 0; i < Slots::per_quarter; ++i) values_there.of[i] = Slots::value(from, i);
      values() = values_there;
    }
  }

  DG_FN Quarter stored() const {
    Quarter made;
    const Keys keys_there = keys();
    if constexpr (Slots::paired) {
      const Values values_there = values();
      DG_UNROLL
      for (u32 i = 0; i < Slots::per_quarter; ++i)
        Slots::put(made, i, keys_there.of[i], values_there.of[i]);
    } else {
      DG_UNROLL
      for (u32 i = 0; i < Slots::per_quarter; ++i) Slots::put(made, i, keys_there.of[i], {});
    }
    return made;
  }
};

/// Brings a region into shared memory; of a blank table it is made there.
template <class Region, class Block>
DG_FN void load_region(Block block, const Region& region) {
  using Slots = typename Region::Slots;
  const auto& table = region.table.at;
  auto& memory = region.memory;
  const char* from = static_cast<const char*>(table.keys) + region.first * kBucketBytes;
  for (u32 i = block.thread(); i < region.buckets * kQuarters; i += Block::threads)
    RegionQuarter<Region>{region, i}.load(
        region.blank ? Quarter{{~0u, ~0u, ~0u, ~0u}}
                     : load_quarter<Access::stale, typename Slots::Unit>(from + i * kQuarterBytes));
  const u32* filter = table.overflow + filter_word(region);
  for (u32 i = block.thread(); i < filter_words(region); i += Block::threads)
    memory.overflow[i] = region.blank ? 0 : filter[i];
  for (u32 i = block.thread(); i < slot_words(region); i += Block::threads) memory.created[i] = 0;
  if constexpr (Slots::has_value && !Slots::paired) {
    if (region.blank) {
      constexpr u32 words = Slots::per_bucket * sizeof(typename Region::Value) / 8;
      u64* values = static_cast<u64*>(table.values) + region.first * words;
      for (u32 i = block.thread(); i < region.buckets * words; i += Block::threads)
        values[i] = ~0ull;
    }
  }
  if (block.thread() == 0) memory.created_count = memory.later_count = memory.later_taken = 0;
}

/// Writes a region back; the bits of created slots too where they are wanted.
template <class Region, class Block>
DG_FN void store_region(Block block, const Region& region, u32* created) {
  const auto& table = region.table.at;
  const auto& memory = region.memory;
  if (created) {
    u32* to = created + region.first * Region::Slots::per_bucket / 32;
    for (u32 i = block.thread(); i < slot_words(region); i += Block::threads)
      to[i] = memory.created[i];
  }
  // What keys passed whose place is elsewhere is told again when they find it.
  if (memory.created_count == 0 && !region.blank) return;
  char* to = static_cast<char*>(table.keys) + region.first * kBucketBytes;
  for (u32 i = block.thread(); i < region.buckets * kQuarters; i += Block::threads)
    store_quarter(to + i * kQuarterBytes, RegionQuarter<Region>{region, i}.stored());
  u32* filter = table.overflow + filter_word(region);
  for (u32 i = block.thread(); i < filter_words(region); i += Block::threads)
    filter[i] = memory.overflow[i];
}

}  // namespace dg

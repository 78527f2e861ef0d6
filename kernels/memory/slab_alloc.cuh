/// SlabAlloc and its light form (SlabHash §V): slabs of 128 bytes, taken and given back inside kernels.
///
/// Super blocks are made of memory blocks, and these of 1,024 slabs, whose bits in a bitmap of 32 words say
/// whether they are taken. A tile takes slabs from its resident block, which follows from a hash; where
/// that is full, another hash gives the next. Super blocks are added between launches: no kernel asks
/// the driver for memory.
///
/// A slab has an address of 32 bits: 10 for its place in the memory block, 14 for the memory block in the
/// super block, 8 for the super block. The light form has one array for all, so an address is a number
/// of slabs, and no base has to be read.
///
/// Invariant: every word of a free slab is all ones, so that a slab which was just taken is empty already.
/// Whoever gives back a slab that it has written to restores that first, in a launch in which nobody takes any.
#pragma once

#include "core/bucket.cuh"
#include "core/fields.cuh"
#include "core/hash.cuh"

namespace dg {

inline constexpr u32 kSlabBytes = 128;
inline constexpr u32 kSlabQuarters = kSlabBytes / kQuarterBytes;
inline constexpr u32 kBlockSlabs = 1024;
inline constexpr u32 kBlockWords = kBlockSlabs / 32;
/// The address of no slab. The last slab of the last possible super block is never there.
inline constexpr u32 kNoSlab = ~0u;

struct SlabPool {
  void* slabs;         // the light form's only array; else null
  void* const* bases;  // where each super block begins; null in the light form
  u32* bitmaps;        // kBlockWords for each memory block, by super block; 1 is taken
  u64 blocks;          // memory blocks in all
  u64 super_blocks;    // memory blocks of a super block: at most 2^14; of the light form, all

  DG_FIELDS(slabs, bases, bitmaps, blocks, super_blocks)
};

/// The bitmap of a tile's resident block as its lanes remember it, the words of each lane side by side.
template <u32 Width>
struct ResidentBlock {
  static constexpr u32 words = kBlockWords / Width;

  u32 taken[words];
  u32 block = 0;
  u32 changes = 0;  // of the resident block; 0: there is none yet

  /// Whether a slab of this lane's words is free as far as it remembers.
  DG_FN bool room() const {
    bool found = false;
    DG_UNROLL
    for (u32 i = 0; i < words; ++i) found = found || taken[i] != ~0u;
    return found;
  }
};

struct SlabAlloc {
  SlabPool at;

  /// Resident blocks that are tried before a request is refused.
  static constexpr u32 kMostChanges = 32;

  DG_FN char* slab(u32 address) const {
    if (at.bases == nullptr) return static_cast<char*>(at.slabs) + nbytes_to(address);
    return static_cast<char*>(at.bases[address >> 24]) + nbytes_to(address & 0xffffffu);
  }

  /// The address of the slab `unit` of the memory block `block`, which counts on over super blocks.
  DG_FN u32 address_of(u32 block, u32 unit) const {
    if (at.bases == nullptr) return block * kBlockSlabs + unit;
    const u32 each = static_cast<u32>(at.super_blocks);
    return (block / each) << 24 | (block % each) * kBlockSlabs | unit;
  }

  DG_FN u32 block_of(u32 address) const {
    if (at.bases == nullptr) return address / kBlockSlabs;
    return (address >> 24) * static_cast<u32>(at.super_blocks) +
           (address & 0xffffffu) / kBlockSlabs;
  }

  DG_FN u64 slabs() const { return at.blocks * kBlockSlabs; }

  /// Whether the slab number `place` of all is taken, and where it stands.
  DG_FN char* slab_at(u64 place) const {
    return slab(
        address_of(static_cast<u32>(place / kBlockSlabs), static_cast<u32>(place % kBlockSlabs)));
  }

  /// A slab for the whole tile, or kNoSlab. `who` is a number of the tile, or of what it works for: it
  /// decides which memory blocks are tried, and where in them.
  template <class Tile>
  DG_FN u32 allocate(Tile tile, u64 who, ResidentBlock<Tile::size>& resident) const {
    const u64 most = at.blocks < kMostChanges ? at.blocks : kMostChanges;
    // Tiles with the same resident block begin at different words.
    const u64 hash = mix(who);
    const u32 start = static_cast<u32>(hash) % Tile::size;
    for (u32 tries = 0; tries <= most; ++tries) {
      while (resident.changes != 0) {
        const u32 lanes = tile.ballot(resident.room());
        if (lanes == 0) break;
        const u32 behind = lanes & ~ones_below(start);
        const u32 source = lowest_one(behind ? behind : lanes);
        u32 got = kNoSlab;
        if (tile.lane() == source) got = take(resident, source);
        got = tile.shuffle(got, source);
        if (got != kNoSlab) return got;
      }
      if (tries == most) break;
      settle(tile, hash, resident);
    }
    return kNoSlab;
  }

  /// The same without a memory of the resident block, which costs another read.
  template <class Tile>
  DG_FN u32 allocate(Tile tile, u64 who) const {
    ResidentBlock<Tile::size> resident;
    return allocate(tile, who, resident);
  }

  /// A slab, or kNoSlab, for each lane that asks: lanes whose words have room take at the same time.
  template <class Tile>
  DG_FN u32 allocate_each(Tile tile, bool asked, u64 who,
                          ResidentBlock<Tile::size>& resident) const {
    u32 mine = kNoSlab;
    for (u32 queue; (queue = tile.ballot(asked && mine == kNoSlab)) != 0;) {
      const bool takes = asked && mine == kNoSlab && resident.changes != 0 && resident.room();
      if (takes) mine = take(resident, tile.lane());
      if (tile.any(takes)) continue;
      // Other lanes' words, or another block.
      const u32 got = allocate(tile, who, resident);
      if (got == kNoSlab) break;
      if (tile.lane() == lowest_one(queue)) mine = got;
    }
    return mine;
  }

  /// By one lane.
  DG_FN void release(u32 address) const {
    const u32 unit = address % kBlockSlabs;
    atomic_fetch_and<Order::relaxed>(word_of(block_of(address)) + unit / 32, ~(1u << unit % 32));
  }

 private:
  DG_FN static u64 nbytes_to(u32 slabs) { return static_cast<u64>(slabs) * kSlabBytes; }
  DG_FN u32* word_of(u32 block) const { return at.bitmaps + static_cast<u64>(block) * kBlockWords; }

  /// Takes the lowest slab that is free as far as the lane remembers; what it sees meanwhile, it
  /// remembers.
  template <class Resident>
  DG_FN u32 take(Resident& resident, u32 lane) const {
    u32 word = 0, taken = ~0u;
    DG_UNROLL
    for (u32 i = Resident::words; i-- > 0;)
      if (resident.taken[i] != ~0u) {
        word = i;
        taken = resident.taken[i];
      }
    const u32 bit = lowest_one(~taken), place = lane * Resident::words + word;
    const u32 was = atomic_fetch_or<Order::relaxed>(word_of(resident.block) + place, 1u << bit);
    DG_UNROLL
    for (u32 i = 0; i < Resident::words; ++i)
      if (i == word) resident.taken[i] = was | 1u << bit;
    return was >> bit & 1u ? kNoSlab : address_of(resident.block, place * 32 + bit);
  }

  /// Makes another block the resident one. The first is anywhere; the next ones follow at a stride, so
  /// that none comes twice before all have come where there are few.
  template <class Tile, class Resident>
  DG_FN void settle(Tile tile, u64 hash, Resident& resident) const {
    if (resident.changes++ == 0) {
      resident.block = static_cast<u32>(mulhi(hash, at.blocks));
    } else {
      const u32 step =
          at.blocks <= kMostChanges
              ? 1
              : 1 + static_cast<u32>(mulhi(mix(hash + resident.changes), at.blocks - 1));
      const u64 next = static_cast<u64>(resident.block) + step;
      resident.block = static_cast<u32>(next < at.blocks ? next : next - at.blocks);
    }
    const u32* words = word_of(resident.block) + tile.lane() * Resident::words;
    if constexpr (Resident::words % 4 == 0) {
      DG_UNROLL
      for (u32 i = 0; i < Resident::words; i += 4) {
        const Quarter seen = load_quarter<Access::shared, u32>(words + i);
        DG_UNROLL
        for (u32 j = 0; j < 4; ++j) resident.taken[i + j] = seen.word[j];
      }
    } else {
      DG_UNROLL
      for (u32 i = 0; i < Resident::words; ++i)
        resident.taken[i] = atomic_load<Order::relaxed>(words + i);
    }
  }
};

}  // namespace dg

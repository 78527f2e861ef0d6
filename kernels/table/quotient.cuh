/// Open addressing of short keys, each with a node of a tree in one word of eight bytes (quotienting, Cleary
/// 1984): the line where a key belongs tells the upper bits of its hash, which is a bijection, so a word has the
/// others alone.
///
/// A word is, from the top: how many lines behind its own the key stands, the lower bits of its hash, its node.
///
/// Invariants
///  * A new key takes the first free word from its line on, line by line, so equal keys meet and only one is
///    stored. Words are never freed, so a search ends at the first line with a free one.
///  * A free word is all ones, which no other is: a key never stands as many lines behind as all ones would say.
///  * One compare-and-swap stores a key with its node, and one changes the node: no key is seen without it.
#pragma once

#include "core/atomic.cuh"
#include "core/bucket.cuh"
#include "core/fields.cuh"
#include "core/slot.cuh"
#include "core/tree.cuh"
#include "table/rows/lines.cuh"

namespace dg {

/// As kernels get it, by value.
struct QuotientStorage {
  u64* words;          // eight a line
  u64* created;        // added to: keys that are new
  u64* homeless;       // added to: keys that found no place
  u64 lines;           // more than 2^kStepBits
  u64 minimizer_bits;  // of a key, and of its hash: even, 2 to 62
  u64 lower_bits;      // of a hash in a word: so many that no two hashes of a line are equal there
  u64 node_bits;       // of a node, up to 32

  DG_FIELDS(words, created, homeless, lines, minimizer_bits, lower_bits, node_bits)
};

struct QuotientTable {
  using Slots = Slot<u64, void>;

  static constexpr u32 kStepBits = 10;
  static constexpr u32 kStepShift = 64 - kStepBits;
  static constexpr u64 kFree = ~0ull;

  QuotientStorage at;

  /// Where a key may stand: `tag` is its word there, with all ones for the node.
  struct Walk {
    u64 line;
    u64 tag;
  };

  /// What a line has of a key: the key itself, or a place for it.
  struct Seen {
    bool hit;
    bool gap;
    u64 slot;
  };

  DG_FN static u64 ones(u64 bits) { return (u64{1} << bits) - 1; }
  DG_FN u64 node_mask() const { return ones(at.node_bits); }

  /// The finalizer of MurmurHash3 for words of `minimizer_bits` bits; shifts by half of them undo themselves.
  DG_FN u64 hash_of(u64 key) const {
    const u64 mask = ones(at.minimizer_bits), half = at.minimizer_bits / 2;
    key ^= key >> half;
    key = key * 0xff51afd7ed558ccdull & mask;
    key ^= key >> half;
    key = key * 0xc4ceb9fe1a85ec53ull & mask;
    return key ^ key >> half;
  }

  DG_FN u64 key_of(u64 hash) const {
    const u64 mask = ones(at.minimizer_bits), half = at.minimizer_bits / 2;
    hash ^= hash >> half;
    hash = hash * 0x9cb4b2f8129337dbull & mask;
    hash ^= hash >> half;
    hash = hash * 0x4f74430c22a54005ull & mask;
    return hash ^ hash >> half;
  }

  /// The line of a hash; those of one line are neighbours.
  DG_FN u64 line_of(u64 hash) const { return mulhi(hash << (64 - at.minimizer_bits), at.lines); }

  DG_FN Walk begin(u64 key) const {
    const u64 hash = hash_of(key);
    return {line_of(hash), (hash & ones(at.lower_bits)) << at.node_bits | node_mask()};
  }

  DG_FN void ask_for(const Walk& walk) const { prefetch(at.words + walk.line * Slots::per_bucket); }

  /// Goes on to the next line; false: no key stands there, for its word could not say so.
  DG_FN bool next(Walk& walk) const {
    walk.tag += u64{1} << kStepShift;
    walk.line = walk.line + 1 == at.lines ? 0 : walk.line + 1;
    return walk.tag >> kStepShift != ones(kStepBits);
  }

  /// The key of a word that is not free.
  DG_FN u64 key_in(u64 slot, u64 word) const {
    const u64 steps = word >> kStepShift, stands = slot / Slots::per_bucket;
    const u64 line = stands < steps ? stands + at.lines - steps : stands - steps;
    const u64 lower = word >> at.node_bits & ones(at.lower_bits);
    // Not above the first hash of the line: what doubles have of it is at most so far from it.
    const double each =
        static_cast<double>(u64{1} << at.minimizer_bits) / static_cast<double>(at.lines);
    const u64 about = static_cast<u64>(static_cast<double>(line) * each),
              far = at.minimizer_bits > 48 ? 1 << 14 : 2;
    const u64 first = about < far ? 0 : about - far;
    u64 hash = first + ((lower - first) & ones(at.lower_bits));
    while (hash <= ones(at.minimizer_bits) && line_of(hash) < line) hash += u64{1} << at.lower_bits;
    return key_of(hash & ones(at.minimizer_bits));
  }

  DG_FN u32 node_in(u64 word) const { return static_cast<u32>(word & node_mask()); }

  /// A quarter of a line, with all ones for nodes.
  template <Access access>
  DG_FN Quarter load(u64 line, u32 part) const {
    const char* from = reinterpret_cast<const char*>(at.words) + line * kBucketBytes;
    Quarter quarter = load_quarter<access, u64>(from + part * kQuarterBytes);
    quarter.word[0] |= static_cast<u32>(node_mask());
    quarter.word[2] |= static_cast<u32>(node_mask());
    return quarter;
  }

  /// What stands in each lane's own line.
  template <Access access, class Lanes>
  DG_FN Seen look(Lanes tile, const Walk& walk) const {
#if !DG_GPU
    if constexpr (Lanes::size == 1) {
      Quarter seen[kQuarters];
      for (u32 part = 0; part < kQuarters; ++part) seen[part] = load<access>(walk.line, part);
      const u32 hits = slots_with<sizeof(u64)>(seen, walk.tag);
      const u32 gaps = slots_with<sizeof(u64)>(seen, kFree);
      const u32 wanted = hits != 0 ? hits : gaps;
      const u64 first = walk.line * Slots::per_bucket;
      return {hits != 0, gaps != 0, wanted != 0 ? first + lowest_one(wanted) : first};
    }
#endif
    if constexpr (Lanes::size > 1) {
      const auto seen = Lines<Slots>::template look_by<true>(
          tile, walk.tag, walk.line,
          [&](u64 line, u32 part) { return this->template load<access>(line, part); });
      return {seen.hit, seen.gap, seen.slot};
    } else {
      return {};
    }
  }

  /// Stores a key with its node in a free word; false: the word is taken by now.
  DG_FN bool publish(u64 slot, const Walk& walk, u32 node) const {
    const u64 word = (walk.tag ^ node_mask()) | node;
    return atomic_swap_if<Order::relaxed>(at.words + slot, kFree, word) == kFree;
  }

  /// Changes the node of a key to its lowest common ancestor with another.
  DG_FN void fold(u64 slot, u32 node, const Tree& tree) const {
    u64 held = atomic_load<Order::relaxed>(at.words + slot);
    while (true) {
      const u64 made = (held & ~node_mask()) | tree.folded(node_in(held), node);
      if (made == held) return;
      const u64 seen = atomic_swap_if<Order::relaxed>(at.words + slot, held, made);
      if (seen == held) return;
      held = seen;
    }
  }
};

}  // namespace dg

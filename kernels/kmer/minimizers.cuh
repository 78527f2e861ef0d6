/// Minimizers of k-mers by Kraken 2's rule: the lowest of a k-mer's l-mers, in an order that a toggle mixes, after
/// the bases that a spaced seed leaves out were set to A.
#pragma once

#include "core/tree.cuh"
#include "kmer/kmers.cuh"
#include "kmer/lane_bases.cuh"

namespace dg {

/// l-mers that a k-mer can have, and those that it has by the default settings.
inline constexpr u32 kMostLmers = 32;
inline constexpr u32 kUsualLmers = 5;

struct MinimizerRule {
  u64 k;
  u64 l;       // up to 31
  u64 spaced;  // two ones for each base that counts
  u64 toggle;  // of 2 l bits
  u64 early;  // 1: a letter that is no base begins a k-mer as well, whose l-mers are those behind it

  DG_FIELDS(k, l, spaced, toggle, early)

  DG_FN u64 order_of(const Kmer64& mer) const { return (mer.canonical() & spaced) ^ toggle; }
};

/// The lowest of the last `width` words, which are in registers.
template <u32 width>
struct FewLast {
  u64 kept[width] = {};

  DG_FN void push(u64 word) {
    DG_UNROLL
    for (u32 i = 1; i < width; ++i) kept[i - 1] = kept[i];
    kept[width - 1] = word;
  }

  DG_FN u64 lowest() const {
    const u64 later = lowest_later();
    return kept[0] < later ? kept[0] : later;
  }

  /// Without the oldest one.
  DG_FN u64 lowest_later() const {
    u64 found = kept[width - 1];
    DG_UNROLL
    for (u32 i = 1; i + 1 < width; ++i) found = kept[i] < found ? kept[i] : found;
    return found;
  }
};

/// Memory for so many words, `step` words from one to the next.
struct WindowMemory {
  u64* words;
  u64 step;

  DG_FN u64& operator[](u32 index) const { return words[index % kMostLmers * step]; }
};

/// The lowest of the last `width` words, up to `kMostLmers`: where it leaves, the words that stay are asked.
struct ManyLast {
  WindowMemory kept;
  u32 width;
  u32 pushed = 0;
  u32 lowest_at = 0;
  u64 low = ~0ull;

  DG_FN ManyLast(WindowMemory memory, u64 words) : kept(memory), width(static_cast<u32>(words)) {}

  DG_FN void push(u64 word) {
    kept[pushed] = word;
    if (word <= low) {
      low = word;
      lowest_at = pushed;
    } else if (pushed - lowest_at >= width) {
      low = word;
      lowest_at = pushed;
      for (u32 back = 1; back < width; ++back) {
        const u64 other = kept[pushed - back];
        if (other < low) {
          low = other;
          lowest_at = pushed - back;
        }
      }
    }
    ++pushed;
  }

  DG_FN u64 lowest() const { return low; }

  /// Without the oldest one.
  DG_FN u64 lowest_later() const {
    u64 found = kept[pushed - 1];
    for (u32 back = 2; back < width; ++back)
      found = kept[pushed - back] < found ? kept[pushed - back] : found;
    return found;
  }
};

/// Letters as they are read: those of a quality below `least` are no bases.
struct ReadLetters {
  const u8* letters;
  const u8* qualities;  // or null
  u64 least;

  DG_FIELDS(letters, qualities, least)

  DG_FN u32 base(u64 at) const {
    if (qualities && qualities[at] < least) return kNoBase;
    return base_of(letters[at]);
  }
};

/// Calls `visit(from, minimizer, record, is_first)` for the k-mers that start in [first, last) and have bases
/// alone, and for early ones; `is_first`: not one letter behind the k-mer before, or of another record. `record` is
/// that of `first`; `offsets` are where records begin, and the last one's end.
template <class Window, class Visit>
DG_FN void for_each_minimizer(const MinimizerRule& by, Window window, const ReadLetters& letters,
                              const i64* offsets, u64 record, u64 first, u64 last,
                              const Visit& visit) {
  const u32 l = static_cast<u32>(by.l);
  Kmer64 mer;
  u64 run = 0;                // bases since the last break
  bool behind_other = false;  // whether the break is a letter of the record, from `first` on
  u64 end_of_record = static_cast<u64>(offsets[record + 1]);
  for (u64 at = first; at < last + by.k - 1; ++at) {
    if (at == end_of_record) {
      run = 0;
      behind_other = false;
      if (at >= last) break;
      while (static_cast<u64>(offsets[record + 1]) == at) ++record;
      end_of_record = static_cast<u64>(offsets[record + 1]);
    }
    const u32 base = letters.base(at);
    if (base == kNoBase) {
      run = 0;
      behind_other = by.early != 0;
      if (at >= last) break;
      continue;
    }
    mer.push(base, l);
    ++run;
    if (run < by.l) continue;
    window.push(by.order_of(mer));
    if (run >= by.k)
      visit(at + 1 - by.k, window.lowest() ^ by.toggle, record, run == by.k && !behind_other);
    else if (behind_other && run + 1 == by.k)
      visit(at + 1 - by.k, window.lowest_later() ^ by.toggle, record, true);
  }
}

/// Letters of a lane where a tile finds the minimizers of k-mers together.
inline constexpr u32 kLettersOfLane = 8;

/// The minimizers of k-mers with `kUsualLmers` l-mers, in the registers of a tile's lanes: of those that begin with the
/// lane's letters, each one's bit is in `kmers` where it has bases alone, or is early, and in `starts` where a run begins
/// with it.
struct LaneMinimizers {
  static constexpr u32 count = kLettersOfLane, all = count + kUsualLmers - 1;

  u64 words[all];  // the lowest one of each k-mer, in the order of the rule
  u32 kmers = 0, starts = 0;
  u32 behind;  // place where the last run of the lane ends

  /// Of k-mers that begin with the first n of the letters, of which the last k - 1 lack them.
  template <class Tile>
  DG_FN LaneMinimizers(Tile tile, const MinimizerRule& by, const LaneBases<count, u64>& bases,
                       u32 n) {
    const u32 l = static_cast<u32>(by.l);
    DG_UNROLL
    for (u32 i = 0; i < count; ++i) words[i] = (bases.canonical(i, l) & by.spaced) ^ by.toggle;
    kmers = bases.kmers(static_cast<u32>(by.k), n, by.early != 0);
    DG_UNROLL
    for (u32 i = count; i < all; ++i) words[i] = tile.shuffle(words[i - count], tile.lane() + 1);
    // The lower ones of two and of four neighbours, and then of all.
    constexpr u32 four = 4;
    static_assert(four + 1 == kUsualLmers);
    DG_UNROLL
    for (u32 size = 1; size < four; size *= 2) {
      DG_UNROLL
      for (u32 i = 0; i < all; ++i)
        if (i + 2 * size <= all) keep_lower(i, i + size);
    }
    // An early one has the l-mers behind its letter alone.
    DG_UNROLL
    for (u32 i = 0; i < count; ++i) {
      if (bases.ends >> i & 1) words[i] = words[i + 1];
      keep_lower(i, i + 1);
    }
    const u64 last = tile.shuffle(words[count - 1], tile.lane() - 1);
    const u32 lasts = tile.shuffle(kmers, tile.lane() - 1);
    // K-mers behind one.
    const u32 later = kmers & (kmers << 1 | (tile.lane() == 0 ? 0 : lasts >> (count - 1) & 1));
    DG_UNROLL
    for (u32 i = 0; i < count; ++i) {
      const bool is_same = words[i] == (i == 0 ? last : words[i - 1]);
      starts |= static_cast<u32>(is_same) << i;
    }
    // What is no k-mer ends a run as well.
    starts = ~(starts & later) & ~0u >> (32 - count);
    behind = next_place<count>(tile, starts);
    starts &= kmers;
  }

  /// K-mers of the run that starts with the lane's i-th letter.
  DG_FN u32 kmers_of(u32 i, u32 first) const {
    const u32 ends = (starts | ~kmers) & ~0u >> (32 - count) & ~(ones_below(i) << 1 | 1);
    return (ends == 0 ? behind : first + lowest_one(ends)) - first - i;
  }

 private:
  DG_FN void keep_lower(u32 at, u32 other) {
    words[at] = words[other] < words[at] ? words[other] : words[at];
  }
};

}  // namespace dg

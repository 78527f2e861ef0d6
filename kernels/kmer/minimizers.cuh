/// Minimizers of k-mers by Kraken 2's rule: the lowest of a k-mer's l-mers, in an order that a toggle mixes, after
/// the bases that a spaced seed leaves out were set to A.
#pragma once

#include "core/tree.cuh"
#include "kmer/kmers.cuh"

namespace dg {

/// l-mers that a k-mer can have, and those that it has by the default settings.
inline constexpr u32 kMostLmers = 32;
inline constexpr u32 kUsualLmers = 5;

struct MinimizerRule {
  u64 k;
  u64 l;       // up to 31
  u64 spaced;  // two ones for each base that counts
  u64 toggle;  // of 2 l bits

  DG_FIELDS(k, l, spaced, toggle)

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
    u64 found = kept[0];
    DG_UNROLL
    for (u32 i = 1; i < width; ++i) found = kept[i] < found ? kept[i] : found;
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
/// alone; `is_first`: not one letter behind the k-mer before, or of another record. `record` is that of
/// `first`; `offsets` are where records begin, and the last one's end.
template <class Window, class Visit>
DG_FN void for_each_minimizer(const MinimizerRule& by, Window window, const ReadLetters& letters,
                              const i64* offsets, u64 record, u64 first, u64 last,
                              const Visit& visit) {
  const u32 l = static_cast<u32>(by.l);
  Kmer64 mer;
  u64 run = 0;  // bases since the last break
  u64 end_of_record = static_cast<u64>(offsets[record + 1]);
  for (u64 at = first; at < last + by.k - 1; ++at) {
    if (at == end_of_record) {
      run = 0;
      if (at >= last) break;
      while (static_cast<u64>(offsets[record + 1]) == at) ++record;
      end_of_record = static_cast<u64>(offsets[record + 1]);
    }
    const u32 base = letters.base(at);
    if (base == kNoBase) {
      run = 0;
      if (at >= last) break;
      continue;
    }
    mer.push(base, l);
    ++run;
    if (run < by.l) continue;
    window.push(by.order_of(mer));
    if (run >= by.k) visit(at + 1 - by.k, window.lowest() ^ by.toggle, record, run == by.k);
  }
}

}  // namespace dg

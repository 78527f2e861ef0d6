/// Super-k-mers: neighbouring k-mers whose minimizers are of one part, and so their letters once (MSPKmerCounter,
/// Li and Yan 2015; KMC 2, Deorowicz et al. 2015). A minimizer is the m-mer of the lowest hash, of both strands,
/// so that a k-mer and its reverse complement have one part.
#pragma once

#include "core/hash.cuh"
#include "core/platform.cuh"
#include "kmer/bases.cuh"
#include "kmer/kmers.cuh"

namespace dg {

/// How k-mers are dealt out.
struct KmerParts {
  u32 k;
  u32 m;      // of minimizers, at most k and 32
  u64 parts;  // at most 65,536

  /// One product: it orders m-mers, and says nothing else.
  DG_FN u64 hash(const Kmer64& mer) const {
    return (mer.canonical() ^ 0x5bd1e995u) * 0x9e3779b97f4a7c15ull;
  }
  // The lowest of many hashes is low: it says nothing by its own top bits.
  DG_FN u32 part(u64 hash) const { return owner_of_hash(mix(hash ^ 0xc2b2ae3d27d4eb4full), parts); }
};

/// The lowest hash of the m-mers so far, and the last place that has it.
struct Minimizer {
  u64 hash = 0;
  u64 at = 0;

  /// Whether the lowest hash is another one now.
  DG_FN bool meet(u64 other, u64 place, bool is_first) {
    if (!is_first && other > hash) return false;
    const bool is_new = is_first || other != hash;
    hash = other;
    at = place;
    return is_new;
  }
};

/// Of the m-mers in letters [first, last), which are bases.
DG_FN Minimizer minimizer_of(const KmerParts& by, const u8* letters, u64 first, u64 last) {
  Minimizer found;
  Kmer64 mer;
  for (u64 at = first; at < last; ++at) {
    mer.push(base_of(letters[at]), by.m);
    const u64 length = at + 1 - first;
    if (length >= by.m) found.meet(by.hash(mer), at + 1 - by.m, length == by.m);
  }
  return found;
}

/// Calls `visit(start, kmers, part)` for the super-k-mers of the k-mers that start in [first, last), which
/// are parted at `last`. `record` is that of `first`; `offsets` are where records begin in `letters`, and
/// the last one's end. k-mers do not go from record to record.
template <class Visit>
DG_FN void for_each_super_kmer(const KmerParts& by, const u8* letters, const i64* offsets,
                               u64 record, u64 first, u64 last, const Visit& visit) {
  Kmer64 mer;
  Minimizer lowest;
  u64 run = 0;    // bases since the last break
  u64 kmers = 0;  // of the super-k-mer that goes on
  u64 start = 0;
  u32 part = 0, here = 0;
  bool is_new = false;  // whether `here` is not yet the part of the lowest hash
  u64 end_of_record = static_cast<u64>(offsets[record + 1]);
  for (u64 at = first; at < last + by.k - 1; ++at) {
    if (at == end_of_record) {
      run = 0;
      if (at >= last) break;
      while (static_cast<u64>(offsets[record + 1]) == at) ++record;
      end_of_record = static_cast<u64>(offsets[record + 1]);
    }
    const u32 base = base_of(letters[at]);
    if (base == kNoBase) {
      run = 0;
      if (at >= last) break;
      continue;
    }
    mer.push(base, by.m);
    ++run;
    if (run >= by.m) is_new |= lowest.meet(by.hash(mer), at + 1 - by.m, run == by.m);
    if (run < by.k) continue;
    const u64 from = at + 1 - by.k;
    if (lowest.at < from) {
      lowest = minimizer_of(by, letters, from, at + 1);
      is_new = true;
    }
    if (is_new) here = by.part(lowest.hash);
    is_new = false;
    if (kmers != 0 && here == part && run > by.k) {
      ++kmers;
      continue;
    }
    if (kmers != 0) visit(start, kmers, part);
    start = from;
    part = here;
    kmers = 1;
  }
  if (kmers != 0) visit(start, kmers, part);
}

}  // namespace dg

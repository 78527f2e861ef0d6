/// Calls of all reads of one length that references have, by the taxa of their k-mers.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/platform.cuh"

namespace dg {

/// Taxa by numbers, of which a parent has a lower one than its children; 0 is none and 1 the root.
struct TaxonPlaces {
  const u32* parents;
  const u32* places;  // in preorder
  const u32* sizes;   // of clades

  bool has(u32 clade, u32 taxon) const { return places[taxon] - places[clade] < sizes[clade]; }

  u32 ancestor(u32 one, u32 other) const {
    while (one != other) (one > other ? one : other) = parents[one > other ? one : other];
    return one;
  }
};

/// The taxa of the k-mers of a read that moves along a reference by a letter at a time.
class ReadWindow {
 public:
  explicit ReadWindow(TaxonPlaces taxa) : taxa_(taxa) {}

  void clear() {
    counts_.clear();
    is_called_ = false;
  }

  void add(u32 taxon, i64 kmers) {
    if (taxon == 0 || kmers == 0) return;
    is_called_ = false;
    auto at = std::find_if(counts_.begin(), counts_.end(),
                           [taxon](const auto& each) { return each.first == taxon; });
    if (at == counts_.end()) {
      counts_.emplace_back(taxon, kmers);
    } else if ((at->second += kmers) == 0) {
      *at = counts_.back();
      counts_.pop_back();
    }
  }

  /// The taxon to whose ancestors and itself most k-mers belong; of several their ancestor; 0: none.
  u32 call() {
    if (is_called_) return called_;
    is_called_ = true;
    called_ = 0;
    i64 most = 0;
    for (const auto& [taxon, own] : counts_) {
      i64 kmers = 0;
      for (const auto& [above, theirs] : counts_)
        if (taxa_.has(above, taxon)) kmers += theirs;
      if (kmers > most) {
        most = kmers;
        called_ = taxon;
      } else if (kmers == most) {
        called_ = taxa_.ancestor(called_, taxon);
      }
    }
    return called_;
  }

 private:
  TaxonPlaces taxa_;
  std::vector<std::pair<u32, i64>> counts_;
  u32 called_ = 0;
  bool is_called_ = false;
};

/// K-mers from a position on that have one taxon.
struct TaxonSpan {
  i64 start;
  u32 taxon;
};

/// Counts the calls of reads of `kmers` k-mers that begin from `first` to before `last`. Spans cover
/// all of their k-mers, and two more end them: one behind the last k-mer, one beyond all positions.
inline void count_calls(const std::vector<TaxonSpan>& spans, i64 first, i64 last, i64 kmers,
                        ReadWindow& window, std::map<u32, i64>& counts) {
  window.clear();
  std::size_t in = 0, out = 0;
  for (; spans[in].start < first + kmers; ++in)
    window.add(spans[in].taxon,
               std::min(spans[in + 1].start, first + kmers) - std::max(spans[in].start, first));
  if (in) --in;
  for (i64 at = first; at < last;) {
    while (spans[in + 1].start <= at + kmers) ++in;
    while (spans[out + 1].start <= at) ++out;
    // K-mers that enter and leave have the same taxa for so many reads.
    const i64 steps =
        std::min({last - at, spans[in + 1].start - (at + kmers), spans[out + 1].start - at});
    const u32 entering = spans[in].taxon, leaving = spans[out].taxon;
    if (entering == leaving) {
      counts[window.call()] += steps;
      at += steps;
      continue;
    }
    for (const i64 end = at + steps; at < end; ++at) {
      ++counts[window.call()];
      window.add(leaving, -1);
      window.add(entering, 1);
    }
  }
}

}  // namespace dg

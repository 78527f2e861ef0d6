/// What Python does with the letters of references beside kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "grid/for_each.cuh"
#include "host/dust.h"
#include "host/read_windows.h"
#include "host/references_module.h"

namespace nb = nanobind;

namespace dg {
namespace {

template <class Word>
using Input = nb::ndarray<const Word, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Letters = nb::ndarray<u8, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Positions that a thread takes at a time.
constexpr i64 kBlock = 1 << 14;
// Work of a block, in lookups of a table.
constexpr u64 kBlockWork = kBlock / 4;

void mask_dust(Input<u8> letters, Input<i64> offsets, Letters out) {
  const i64* ends = offsets.data();
  const i64 records = static_cast<i64>(offsets.size()) - 1, rows = ends[records];
  nb::gil_scoped_release released;
  for_each_piece((rows + kBlock - 1) / kBlock, kBlockWork, [&](u64 first, u64 last) {
    Dust dust;
    i64 from = static_cast<i64>(first) * kBlock;
    const i64 end = std::min(static_cast<i64>(last) * kBlock, rows);
    for (i64 record = std::upper_bound(ends, ends + records, from) - ends - 1; from < end;
         ++record) {
      const i64 to = std::min(ends[record + 1], end);
      if (from < to)
        dust.mask(letters.data(), ends[record], ends[record + 1], from, to, out.data());
      from = to;
    }
  });
}

/// Runs of k-mers of one minimizer, and the taxon of each.
struct TaxonRuns {
  const u32* starts;
  const u16* kmers;
  const u32* taxa;
  i64 rows;

  /// Spans of the k-mers from `first` to before `last`; where no run is, the taxon is 0.
  void spans(i64 first, i64 last, std::vector<TaxonSpan>& found) const {
    found.clear();
    const auto add = [&found](i64 start, u32 taxon) {
      if (found.empty() || found.back().taxon != taxon) found.push_back({start, taxon});
    };
    i64 run = std::upper_bound(starts, starts + rows, first) - starts;
    if (run && starts[run - 1] + kmers[run - 1] > first) --run;
    i64 at = first;
    for (; run < rows && starts[run] < last; ++run) {
      const i64 start = std::max<i64>(starts[run], first);
      if (start > at) add(at, 0);
      add(start, taxa[run]);
      at = std::max<i64>(at, std::min<i64>(starts[run] + kmers[run], last));
    }
    if (at < last) add(at, 0);
    found.push_back({last, 0});
    found.push_back({std::numeric_limits<i64>::max(), 0});
  }
};

struct Block {
  i64 piece, first, last;
};

/// (node of a piece, node of a call, reads) of all reads of `length` letters in pieces, those that
/// begin in the first letters of a piece left out.
nb::list count_read_calls(Input<u32> starts, Input<u16> kmers, Input<u32> taxa, Input<i64> offsets,
                          Input<i64> skipped, Input<u32> nodes, i64 k, i64 length,
                          Input<u32> parents, Input<u32> places, Input<u32> sizes) {
  const TaxonRuns runs{starts.data(), kmers.data(), taxa.data(), static_cast<i64>(starts.size())};
  const TaxonPlaces tree{parents.data(), places.data(), sizes.data()};
  std::map<std::pair<u32, u32>, i64> counts;
  {
    nb::gil_scoped_release released;
    std::vector<Block> blocks;
    for (i64 piece = 0; piece + 1 < static_cast<i64>(offsets.size()); ++piece) {
      const i64 last = offsets.data()[piece + 1] - length + 1;
      for (i64 at = offsets.data()[piece] + skipped.data()[piece]; at < last; at += kBlock)
        blocks.push_back({piece, at, std::min(at + kBlock, last)});
    }
    std::mutex mutex;
    for_each_piece(blocks.size(), kBlockWork, [&](u64 first, u64 last) {
      ReadWindow window(tree);
      std::vector<TaxonSpan> spans;
      for (u64 at = first; at < last; ++at) {
        const Block& block = blocks[at];
        const i64 kmers_of_read = length - k + 1;
        std::map<u32, i64> own;
        runs.spans(block.first, block.last + kmers_of_read - 1, spans);
        count_calls(spans, block.first, block.last, kmers_of_read, window, own);
        std::lock_guard lock(mutex);
        for (const auto& [call, reads] : own) counts[{nodes.data()[block.piece], call}] += reads;
      }
    });
  }
  nb::list rows;
  for (const auto& [pair, reads] : counts)
    rows.append(nb::make_tuple(pair.first, pair.second, reads));
  return rows;
}

}  // namespace

void add_references(nb::module_& module) {
  module.def("mask_dust", &mask_dust, nb::arg("letters"), nb::arg("offsets"), nb::arg("out"),
             "Write N to `out` where letters of records are of low complexity.");
  module.def("count_read_calls", &count_read_calls, nb::arg("starts"), nb::arg("kmers"),
             nb::arg("taxa"), nb::arg("offsets"), nb::arg("skipped"), nb::arg("nodes"),
             nb::arg("k"), nb::arg("length"), nb::arg("parents"), nb::arg("places"),
             nb::arg("sizes"), "(node, called node, reads) of all reads of one length in pieces.");
}

}  // namespace dg

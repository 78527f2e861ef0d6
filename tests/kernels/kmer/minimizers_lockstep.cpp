/// Minimizers of records cut into segments, packed, and the calls and runs of reads by their taxa, against the
/// rules in plain words.
#define DG_LOCKSTEP
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "host/lockstep.h"
#include "launch/kmer/minimizers.cuh"

#define CHECK(claim)                                                             \
  do {                                                                           \
    if (!(claim)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

namespace dg::test {
namespace {

constexpr u64 kNone = ~0ull;
constexpr u64 kToggle = 0xe37e28c4271b5a2dull;

MinimizerRule rule_of(u64 k, u64 l, u64 spaces, bool early = false) {
  u64 spaced = mask_of_bases(static_cast<u32>(l));
  for (u64 space = 0; space < spaces; ++space) spaced &= ~(3ull << 4 * space << 2);
  return {k, l, spaced, kToggle & mask_of_bases(static_cast<u32>(l)), early};
}

u64 code_of(const std::string& mer) {
  u64 code = 0;
  for (const char letter : mer) code = code << 2 | std::string("ACGT").find(letter);
  return code;
}

/// Of each k-mer of a record; kNone of those with other letters, unless they are early.
std::vector<u64> minimizers_of(const MinimizerRule& rule, std::string record) {
  for (char& letter : record) letter = static_cast<char>(std::toupper(letter));
  std::vector<u64> made;
  for (u64 at = 0; at + rule.k <= record.size(); ++at) {
    const std::string kmer = record.substr(at, rule.k);
    u64 lowest = kNone;
    const u64 others = kmer.find_last_not_of("ACGT");
    const bool early = rule.early != 0 && others == 0;
    if (others == kmer.npos || early)
      for (u64 start = early; start + rule.l <= rule.k; ++start) {
        const std::string mer = kmer.substr(start, rule.l);
        std::string back(mer.rbegin(), mer.rend());
        for (char& letter : back)
          letter = letter == 'A' ? 'T' : letter == 'C' ? 'G' : letter == 'G' ? 'C' : 'A';
        lowest =
            std::min(lowest, (std::min(code_of(mer), code_of(back)) & rule.spaced) ^ rule.toggle);
      }
    made.push_back(lowest == kNone ? kNone : lowest ^ rule.toggle);
  }
  return made;
}

struct Runs {
  std::vector<u64> minimizers;
  std::vector<u32> starts, nodes, taxa;
  std::vector<u16> kmers;
  std::vector<i64> offsets{0}, places;

  void resize(u64 rows) {
    minimizers.resize(rows);
    starts.resize(rows);
    nodes.resize(rows);
    kmers.resize(rows);
  }
  MinimizerRuns at() { return {minimizers.data(), starts.data(), kmers.data(), nodes.data()}; }
  MateRuns mate() const {
    return {offsets.data(), places.data(), minimizers.data(),
            starts.data(),  kmers.data(),  taxa.data()};
  }
};

/// Those of all records, as the kernels find them.
template <int W = 1>
Runs found(const MinimizerRule& rule, const std::vector<std::string>& records, u64 segment_rows,
           const std::vector<u32>& nodes, const std::string& qualities = "", u8 least = 0,
           bool any = true, bool apart_words = false) {
  std::string letters;
  Runs made, apart;
  for (const std::string& record : records) {
    letters += record;
    made.offsets.push_back(static_cast<i64>(letters.size()));
  }
  const auto* bytes = reinterpret_cast<const u8*>(letters.data());
  const auto* given = reinterpret_cast<const u8*>(qualities.data());
  const u64 segments = (letters.size() + segment_rows - 1) / segment_rows;
  std::vector<i64> counts(segments), places{0};
  // Too little room at first; then as much as is needed.
  u64 room = 1;
  for (u32 tries = 0; tries < 2; ++tries) {
    apart.resize(segments * room);
    std::vector<u64> memory(any ? segments * kMostLmers : 0);
    const MinimizerArgs args{rule,           {bytes, qualities.empty() ? nullptr : given, least},
                             apart.at(),     made.offsets.data(),
                             nodes.data(),   counts.data(),
                             memory.data(),  apart_words ? segments : 1,
                             records.size(), letters.size(),
                             segment_rows,   room,
                             segments};
    if (any)
      minimizer_find_any(args);
    else
      minimizer_find<W>(args);
    for (const i64 count : counts) room = std::max(room, static_cast<u64>(count));
  }
  for (const i64 count : counts) places.push_back(places.back() + count);
  made.resize(static_cast<u64>(places.back()));
  minimizer_pack<4>({apart.at(), made.at(), places.data(), room, segment_rows, segments});
  for (const i64 offset : made.offsets)
    made.places.push_back(
        std::lower_bound(made.starts.begin(), made.starts.end(), static_cast<u32>(offset)) -
        made.starts.begin());
  return made;
}

std::string drawn(std::mt19937& random, u64 length, const std::string& alphabet) {
  std::string made(length, 'A');
  for (char& letter : made) letter = alphabet[random() % alphabet.size()];
  return made;
}

template <int W = 1>
void finds(u64 k, u64 l, u64 spaces, bool early = false) {
  if (!early && k > l) finds<W>(k, l, spaces, true);
  std::mt19937 random(5);
  const MinimizerRule rule = rule_of(k, l, spaces, early);
  const std::vector<std::string> records{
      "",
      drawn(random, 300, "ACGTacgt"),
      "",
      drawn(random, 300, "ACGTACGTACGTACGTACGTACGTACGTN"),
      drawn(random, k, "ACGT"),
      drawn(random, k - 1, "ACGT"),
      std::string(150, 'A'),
      std::string(90, 't'),
      "ACGUNRYK-\n>*",
      drawn(random, 80, "AT"),
      "",
      "AC",
      "",
      drawn(random, 60, "ACGT"),
      "N" + drawn(random, k - 1, "ACGT"),
      "NN" + drawn(random, k, "ACGT") + "N",
      drawn(random, 3, "ACGT") + "N" + drawn(random, std::max<u64>(k, 2) - 2, "ACGT"),
      drawn(random, 900, "ACGTACGTACGTACGTACGTACGTACGTACGTN"),
      ""};
  std::vector<u32> nodes;
  for (u32 record = 0; record < records.size(); ++record) nodes.push_back(record % 3);
  std::string qualities;
  for (const std::string& record : records)
    qualities += drawn(random, record.size(), "IIIIIIIIII#");
  // A tile has the k-mers of its letters, and no others.
  const u64 few = W == 1 ? 7 : 20, most = W == 1 ? 5000 : kLettersOfLane * W - k + 1;
  for (const u64 segment_rows : {few, u64{64}, most})
    for (const bool masks : {false, true}) {
      const bool usual = k - l + 1 == kUsualLmers && segment_rows != 64;
      if (W > 1 && !usual) continue;
      const Runs runs =
          found<W>(rule, records, segment_rows, nodes, masks ? qualities : "", '5', !usual, masks);
      u64 run = 0;
      for (u64 record = 0, letter = 0; record < records.size(); ++record) {
        std::string masked = records[record];
        for (char& each : masked)
          if (masks && qualities[letter++] == '#') each = 'N';
        const auto expected = minimizers_of(rule, masked);
        if (!masks) letter += masked.size();
        for (u64 at = 0; nodes[record] != 0 && at < expected.size(); ++at) {
          if (expected[at] == kNone) continue;
          CHECK(run < runs.starts.size());
          CHECK(runs.starts[run] == static_cast<u64>(runs.offsets[record]) + at);
          CHECK(runs.nodes[run] == nodes[record]);
          for (u64 kmer = 0; kmer < runs.kmers[run]; ++kmer)
            CHECK(expected[at + kmer] == runs.minimizers[run]);
          at += runs.kmers[run] - 1u;
          ++run;
        }
      }
      CHECK(run == runs.starts.size());
    }
}

/// A tree with numbers level by level, where each taxon is followed by its clade, and the sizes of clades.
struct Taxa {
  std::vector<u32> parents{0, 0}, places, sizes;
  std::vector<i64> taxids;

  Taxa(std::mt19937& random, u32 nodes) : places(nodes), sizes(nodes, 1), taxids(nodes) {
    for (u32 node = 2; node < nodes; ++node)
      parents.push_back(std::max(parents.back(), 1 + static_cast<u32>(random() % (node - 1))));
    for (u32 node = nodes - 1; node > 1; --node) sizes[parents[node]] += sizes[node];
    places[0] = ~0u;
    std::vector<u32> next(nodes, 1);
    for (u32 node = 2; node < nodes; ++node) {
      places[node] = places[parents[node]] + next[parents[node]];
      next[parents[node]] += sizes[node];
    }
    for (u32 node = 0; node < nodes; ++node) taxids[node] = 10 * node;
  }
  bool is_above(u32 above, u32 taxon) const {
    for (; taxon != 0; taxon = parents[taxon])
      if (taxon == above) return true;
    return false;
  }
  TaxonTree tree() const { return {{parents.data(), parents.size()}, places.data(), sizes.data()}; }
};

template <int W>
void calls(u32 alphabet) {
  std::mt19937 random(alphabet);
  const Taxa taxa(random, 120);
  const u64 n = 30, k = 12;
  const MinimizerRule rule = rule_of(k, 8, 2);
  std::vector<std::string> reads[2];
  for (u64 read = 0; read < n; ++read)
    for (auto& mates : reads)
      mates.push_back(drawn(random, random() % (read % 9 == 0 ? 600 : 90), "ACGTACGTACGTACGTN"));
  const std::vector<u32> ones(n, 1);
  Runs runs[2];
  std::vector<std::vector<u64>> minimizers[2];
  // The same minimizer has the same taxon; many have none.
  const auto taxon_of = [&](u64 minimizer) {
    const u32 drawn_taxon = static_cast<u32>(mix(minimizer) % (2 * alphabet));
    return drawn_taxon < alphabet ? 1 + drawn_taxon % 119 : 0;
  };
  for (u32 mate = 0; mate < 2; ++mate) {
    runs[mate] = found(rule, reads[mate], 64, ones);
    for (const u64 minimizer : runs[mate].minimizers)
      runs[mate].taxa.push_back(taxon_of(minimizer));
    for (const std::string& read : reads[mate])
      minimizers[mate].push_back(minimizers_of(rule, read));
  }
  std::vector<u32> memory(4 * (runs[0].taxa.size() + runs[1].taxa.size()));
  for (const bool pairs : {false, true})
    for (const double confidence : {0.0, 0.1, 1.0})
      for (const u32 flags : {0u, 1u, 2u}) {
        const u64 groups = flags == 0 ? 2 : 3;
        std::vector<i64> called(n, -9);
        std::vector<u32> hits(n, 9);
        read_call<W>({runs[0].mate(), pairs ? runs[1].mate() : MateRuns{}, taxa.tree(),
                      taxa.taxids.data(), memory.data(), called.data(), hits.data(), confidence, k,
                      groups, flags & 1, flags >> 1, n});
        std::vector<i64> counts(n), places{0};
        ReadRunsArgs told{runs[0].mate(),
                          pairs ? runs[1].mate() : MateRuns{},
                          taxa.taxids.data(),
                          counts.data(),
                          nullptr,
                          nullptr,
                          nullptr,
                          -1,
                          -2,
                          k,
                          n};
        read_runs(told);
        for (const i64 count : counts) places.push_back(places.back() + count);
        std::vector<i64> what(static_cast<u64>(places.back()));
        std::vector<u32> kmers(what.size());
        told.counts = nullptr;
        told.places = places.data();
        told.taxids = what.data();
        told.kmers = kmers.data();
        read_runs(told);
        for (u64 read = 0; read < n; ++read) {
          std::map<u32, u64> votes;
          u64 total = 0, met = 0;
          u32 quick = 0, best = 0;
          std::vector<std::pair<i64, u32>> expected;
          const auto tell = [&](i64 it) {
            if (expected.empty() || expected.back().first != it) expected.emplace_back(it, 0);
            ++expected.back().second;
          };
          for (u32 mate = 0; mate < (pairs ? 2 : 1); ++mate) {
            if (mate == 1) tell(-2);
            u64 last = kNone;
            for (const u64 minimizer : minimizers[mate][read]) {
              total += minimizer != kNone || !(flags >> 1);
              if (minimizer == kNone) {
                tell(-1);
                continue;
              }
              const u32 taxon = taxon_of(minimizer);
              tell(taxa.taxids[taxon]);
              if (taxon != 0) {
                met += minimizer != last;
                if (quick == 0 && met >= groups) quick = taxon;
                ++votes[taxon];
              }
              last = minimizer;
            }
          }
          CHECK(counts[read] == static_cast<i64>(expected.size()));
          for (u64 i = 0; i < expected.size(); ++i) {
            const u64 at = static_cast<u64>(places[read]) + i;
            CHECK(expected[i] == std::make_pair(what[at], kmers[at]));
          }
          u64 most = 0;
          for (const auto& [taxon, each] : votes) {
            u64 score = 0;
            for (const auto& [other, count] : votes)
              if (taxa.is_above(other, taxon)) score += count;
            if (score > most)
              best = taxon;
            else if (score == most)
              while (!taxa.is_above(best, taxon)) best = taxa.parents[best];
            most = std::max(most, score);
          }
          const auto clade = [&](u32 above) {
            u64 sum = 0;
            for (const auto& [taxon, count] : votes)
              if (taxa.is_above(above, taxon)) sum += count;
            return sum;
          };
          const double required = std::ceil(confidence * static_cast<double>(total));
          if (best != 0 && static_cast<double>(votes[best]) < required)
            while (best != 0 && static_cast<double>(clade(best)) < required)
              best = taxa.parents[best];
          if (flags & 1) best = quick;
          if (met < groups) best = 0;
          CHECK(called[read] == taxa.taxids[best]);
          CHECK(hits[read] == (best == 0 ? 0 : clade(best)));
        }
      }
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  lockstep::tiles = 4;
  test::finds(35, 31, 7);
  test::finds(31, 31, 0);
  test::finds(12, 8, 2);
  test::finds(36, 5, 1);
  test::finds(9, 8, 2);
  test::finds(1, 1, 0);
  test::finds(20, 11, 2);
  lockstep::tiles = 2;
  test::finds<8>(35, 31, 7);
  test::finds<8>(12, 8, 2);
  test::finds<32>(35, 31, 7);
  lockstep::tiles = 4;
  // Of fewer taxa than lanes, and of more.
  test::calls<1>(12);
  test::calls<4>(1);
  test::calls<4>(119);
  test::calls<32>(12);
  test::calls<32>(119);
  std::printf("minimizers: passed\n");
}

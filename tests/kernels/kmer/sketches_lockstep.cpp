/// Sketches of windows against the features of each window in a set; candidates and calls of reads against maps of
/// their hits and rules written out.
#define DG_LOCKSTEP
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "host/lockstep.h"
#include "launch/kmer/candidates.cuh"
#include "launch/kmer/lineage.cuh"
#include "launch/kmer/sketch.cuh"

#define CHECK(claim)                                                             \
  do {                                                                           \
    if (!(claim)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

namespace dg::test {
namespace {

std::string drawn(std::mt19937& random, u64 length, const std::string& alphabet) {
  std::string made(length, 'A');
  for (char& letter : made) letter = alphabet[random() % alphabet.size()];
  return made;
}

/// The features of a window by its definition.
template <class Feature>
std::vector<Feature> expected_of(const std::string& window, u64 k, u64 most) {
  std::set<Feature> found;
  for (u64 at = 0; at + k <= window.size(); ++at) {
    u64 forward = 0, reverse = 0;
    bool is_whole = true;
    for (u64 i = 0; i < k; ++i) {
      char letter = static_cast<char>(std::toupper(window[at + i]));
      if (letter == 'U') letter = 'T';
      const u64 base = std::string("ACGT").find(letter);
      is_whole &= base < 4;
      forward = forward << 2 | (base & 3);
      reverse |= (3 - (base & 3)) << 2 * i;
    }
    if (!is_whole) continue;
    u64 word = std::min(forward, reverse);
    if (sizeof(Feature) == 4) {
      u32 low = static_cast<u32>(word);
      for (int i = 0; i < 2; ++i) low = ((low >> 16) ^ low) * 0x45d9f3b;
      word = (low >> 16) ^ low;
    } else {
      word = (word ^ word >> 33) * 0xff51afd7ed558ccdull;
      word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53ull;
      word ^= word >> 33;
    }
    if (static_cast<Feature>(word) != static_cast<Feature>(~0ull))
      found.insert(static_cast<Feature>(word));
  }
  std::vector<Feature> made(found.begin(), found.end());
  if (window.size() >= k) most = std::min<u64>(most, window.size() - k + 1);
  if (made.size() > most) made.resize(most);
  return made;
}

struct Batch {
  std::string letters;
  std::vector<i64> offsets{0};

  explicit Batch(const std::vector<std::string>& records) {
    for (const std::string& record : records) {
      letters += record;
      offsets.push_back(static_cast<i64>(letters.size()));
    }
  }
  const u8* bytes() const { return reinterpret_cast<const u8*>(letters.data()); }
};

std::vector<std::string> windows_of(const std::string& record, u64 window, u64 stride) {
  std::vector<std::string> made;
  u64 at = 0;
  for (; at + window <= record.size(); at += stride) made.push_back(record.substr(at, window));
  if (at < record.size()) made.push_back(record.substr(at));
  return made;
}

template <class Feature, int W = 1>
void check_sketches(const std::vector<std::string>& firsts, const std::vector<std::string>& seconds,
                    u64 k, u64 most, u64 window, u64 stride, u64 segment_rows) {
  const Batch batch(firsts), mates(seconds);
  const bool paired = !seconds.empty();
  std::vector<std::vector<Feature>> expected;
  std::vector<std::string> texts;
  std::vector<i64> windows{0};
  for (u64 read = 0; read < firsts.size(); ++read)
    for (u64 side = 0; side <= static_cast<u64>(paired); ++side) {
      const std::string& record = side ? seconds[read] : firsts[read];
      for (const std::string& each : windows_of(record, window, stride)) {
        texts.push_back(each);
        expected.push_back(expected_of<Feature>(each, k, most));
      }
      windows.push_back(static_cast<i64>(expected.size()));
    }
  // More rows than windows, as where nobody waited for their number.
  const u64 rows = expected.size() + 3, records = windows.size() - 1;
  std::vector<Feature> features(rows * most, 7);
  std::vector<i64> counts(rows, -1);
  sketch_find<Feature, W>({batch.bytes(), batch.offsets.data(),
                           paired && !mates.letters.empty() ? mates.bytes() : nullptr,
                           paired ? mates.offsets.data() : nullptr, windows.data(), features.data(),
                           counts.data(), k, most, window, stride, records, rows, segment_rows,
                           (rows + segment_rows - 1) / segment_rows});
  expected.resize(rows);
  std::vector<i64> places{0};
  for (u64 row = 0; row < rows; ++row) {
    std::vector<Feature> wanted = expected[row];
    CHECK(counts[row] == static_cast<i64>(wanted.size()));
    if (row < texts.size()) {
      // As GPUs find them, without arrays of a lane's own.
      std::vector<Feature> one(most);
      const std::string& text = texts[row];
      const u64 kmers = text.size() < k ? 0 : text.size() - k + 1;
      const u32 found = sketch_by_places(reinterpret_cast<const u8*>(text.data()), text.size(),
                                         static_cast<u32>(k),
                                         static_cast<u32>(std::min(most, kmers)), one.data());
      one.resize(found);
      CHECK(kmers == 0 || one == wanted);
    }
    wanted.resize(most, static_cast<Feature>(~0ull));
    CHECK(
        std::equal(wanted.begin(), wanted.end(), features.begin() + static_cast<i64>(row * most)));
    places.push_back(places.back() + counts[row]);
  }
  const u64 n = static_cast<u64>(places[rows - 3]);
  std::vector<u32> targets;
  std::vector<i64> numbers;
  for (u64 record = 0; record < records; ++record) {
    targets.push_back(static_cast<u32>(record * 5 + 1));
    numbers.push_back(static_cast<i64>(record % 3 * 100));
  }
  std::vector<Feature> packed(n);
  std::vector<u64> locations(n);
  sketch_pack<Feature>({features.data(), windows.data(), targets.data(), numbers.data(),
                        places.data(), packed.data(), locations.data(), most, records, rows - 3});
  u64 at = 0;
  for (u64 record = 0; record < records; ++record)
    for (i64 row = windows[record]; row < windows[record + 1]; ++row)
      for (const Feature feature : expected[static_cast<u64>(row)]) {
        CHECK(packed[at] == feature && target_of(locations[at]) == targets[record]);
        CHECK(window_of(locations[at]) ==
              static_cast<u32>(row - windows[record] + numbers[record]));
        ++at;
      }
  CHECK(at == n);
}

struct Candidate {
  u32 target, hits, taxon, first, last;
};

/// By the definition: the best run of each target, the best target of each taxon, ordered.
std::vector<Candidate> expected_top(const std::vector<u64>& hits, u32 reach,
                                    const std::vector<u32>& taxa, u64 most) {
  std::map<u32, std::map<u32, u32>> of;
  for (const u64 hit : hits) ++of[target_of(hit)][window_of(hit)];
  std::map<u32, Candidate> by_taxon;
  for (const auto& [target, counts] : of) {
    Candidate best{target, 0, taxa[target], 0, 0};
    for (const auto& [last, count] : counts) {
      u32 sum = 0, first = last;
      for (const auto& [window, here] : counts)
        if (window <= last && last - window < reach) {
          if (sum == 0) first = window;
          sum += here;
        }
      if (sum > best.hits) best = {target, sum, taxa[target], first, last};
    }
    if (best.taxon == 0) continue;
    const auto [known, is_new] = by_taxon.emplace(best.taxon, best);
    if (!is_new && best.hits > known->second.hits) known->second = best;
  }
  std::vector<Candidate> made;
  for (const auto& [taxon, each] : by_taxon) made.push_back(each);
  std::sort(made.begin(), made.end(), [](const Candidate& one, const Candidate& other) {
    return one.hits != other.hits ? one.hits > other.hits : one.target < other.target;
  });
  if (made.size() > most) made.resize(most);
  return made;
}

/// What `lineage_call` says: of candidates that stay, those with hits above the threshold, from the first on.
i64 expected_call(const std::vector<Candidate>& top, const std::vector<u32>& lineages,
                  const std::vector<u8>& kept, u32 hitmin, float share, u32 lowest, u32 highest) {
  std::vector<Candidate> left;
  for (const Candidate& each : top)
    if (kept.empty() || kept[each.target]) left.push_back(each);
  if (left.empty() || left[0].hits < hitmin) return 0;
  const float threshold =
      left[0].hits > hitmin ? static_cast<float>(left[0].hits - hitmin) * share : 0;
  u32 rank = lowest;
  const auto lineage = [&](u32 target, u32 at) { return lineages[target * kRanks + at]; };
  while (rank < kRanks && lineage(left[0].target, rank) == 0) ++rank;
  for (u64 at = 1; at < left.size() && static_cast<float>(left[at].hits) > threshold; ++at)
    while (rank < kRanks && (lineage(left[0].target, rank) == 0 ||
                             lineage(left[0].target, rank) != lineage(left[at].target, rank)))
      ++rank;
  if (rank > highest) return 0;
  return rank == 0 ? -1 - static_cast<i64>(left[0].target)
                   : 1000 + static_cast<i64>(lineage(left[0].target, rank));
}

template <int W>
void check_candidates(std::mt19937& random, u64 most, u32 lowest, bool tells_runs) {
  const u32 n_targets = 9;
  std::vector<u32> lineages(n_targets * kRanks), taxa;
  std::vector<u8> kept;
  std::vector<i64> taxids;
  for (i64 number = 0; number < 40; ++number) taxids.push_back(number == 0 ? 0 : 1000 + number);
  for (u32 target = 0; target < n_targets; ++target) {
    u32* of = lineages.data() + target * kRanks;
    of[0] = target + 1;
    // One target has no place, and some ranks are empty.
    if (target != 4) of[4] = 10 + target / 2;
    if (target != 4 && target != 5) of[6] = 20 + target / 4;
    if (target != 4) of[19] = 30, of[20] = 31;
    u32 rank = lowest;
    while (rank < kRanks && of[rank] == 0) ++rank;
    taxa.push_back(rank < kRanks ? of[rank] : 0);
    kept.push_back(target % 3 != 1);
  }
  std::vector<u64> hits;
  std::vector<i64> offsets{0};
  std::vector<u32> reaches;
  for (const u64 n : {0, 1, 2, 3, 40, 200, 77, 7, 16, 33, 32, 12, 128, 700, 1, 0}) {
    const u32 spread = n % 2 ? 4 : 40;
    for (u64 i = 0; i < n; ++i)
      hits.push_back(static_cast<u64>(random() % n_targets) << 32 | random() % spread);
    offsets.push_back(static_cast<i64>(hits.size()));
    reaches.push_back(2 + random() % 3);
  }
  const u64 rows = reaches.size(), places = hits.size() * kPlacesOfHit;
  std::vector<u64> counted(places);
  std::vector<u32> hit_counts(places), found[5];
  for (auto& each : found) each.assign(rows * most, 99);
  candidate_find<W>({hits.data(), offsets.data(), reaches.data(), taxa.data(), counted.data(),
                     hit_counts.data(), found[0].data(), found[1].data(), found[2].data(),
                     tells_runs ? found[3].data() : nullptr, tells_runs ? found[4].data() : nullptr,
                     most, rows});
  std::vector<i64> firsts;
  for (u32 target = 0; target < n_targets; ++target) firsts.push_back(41 * target);
  std::vector<u32> covered(41 * n_targets / 32 + 1), expected_covered(covered.size());
  std::vector<std::vector<Candidate>> tops;
  for (u64 row = 0; row < rows; ++row) {
    const std::vector<u64> own(hits.begin() + offsets[row], hits.begin() + offsets[row + 1]);
    tops.push_back(expected_top(own, reaches[row], taxa, most));
    for (u64 at = 0; at < most; ++at) {
      const u64 place = row * most + at;
      if (at >= tops[row].size()) {
        CHECK(found[1][place] == 0);
        continue;
      }
      const Candidate& each = tops[row][at];
      CHECK(found[0][place] == each.target && found[1][place] == each.hits);
      CHECK(found[2][place] == each.taxon);
      if (!tells_runs) continue;
      CHECK(found[3][place] == each.first && found[4][place] == each.last);
      for (u32 window = each.first; window <= each.last && each.hits >= 3; ++window) {
        const u64 bit = 41 * each.target + window;
        expected_covered[bit / 32] |= 1u << bit % 32;
      }
    }
  }
  if (tells_runs) {
    candidate_cover({found[0].data(), found[1].data(), found[3].data(), found[4].data(),
                     firsts.data(), covered.data(), 3, rows * most});
    CHECK(covered == expected_covered);
  }
  for (const bool leaves_out : {false, true})
    for (const u32 hitmin : {0u, 3u})
      for (const float share : {0.0f, 0.5f, 1.0f})
        for (const u32 highest : {lowest, 19u}) {
          std::vector<i64> calls(rows, -99);
          std::vector<u32> top_hits(rows, 99);
          lineage_call({found[0].data(), found[1].data(), lineages.data(), taxids.data(),
                        leaves_out ? kept.data() : nullptr, calls.data(), top_hits.data(), hitmin,
                        lowest, highest, most, share, rows});
          for (u64 row = 0; row < rows; ++row)
            CHECK(calls[row] == expected_call(tops[row], lineages,
                                              leaves_out ? kept : std::vector<u8>{}, hitmin, share,
                                              lowest, highest));
        }
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  std::mt19937 random(7);
  lockstep::tiles = 4;
  const std::string bases = "ACGTacgtU", broken = "ACGTACGTACGTACGTACGTN-";
  std::vector<std::string> firsts{"",
                                  test::drawn(random, 300, bases),
                                  "",
                                  test::drawn(random, 127, bases),
                                  test::drawn(random, 200, broken),
                                  std::string(150, 'A'),
                                  test::drawn(random, 5, bases),
                                  test::drawn(random, 80, "AT"),
                                  ""};
  std::vector<std::string> seconds(firsts.rbegin(), firsts.rend());
  const std::vector<std::string> none, empty(firsts.size());
  for (const auto& mates : {none, seconds, empty})
    for (const u64 segment_rows : {1, 5}) {
      test::check_sketches<u32>(firsts, mates, 16, 16, 127, 112, segment_rows);
      test::check_sketches<u32>(firsts, mates, 3, 4, 20, 7, segment_rows);
      test::check_sketches<u32>(firsts, mates, 1, 2, 1, 1, segment_rows);
      test::check_sketches<u64>(firsts, mates, 17, 5, 40, 24, segment_rows);
      test::check_sketches<u64>(firsts, mates, 32, 16, 127, 96, segment_rows);
    }
  // Lanes together: windows of one piece and of several, by k-mers of which lanes have letters, sketches that fill
  // their places, and larger ones and longer k-mers, which lanes find alone.
  test::check_sketches<u32, 8>(firsts, seconds, 8, 8, 70, 50, 8);
  test::check_sketches<u64, 8>(firsts, none, 7, 5, 33, 24, 3);
  test::check_sketches<u32, 8>(firsts, none, 1, 2, 20, 20, 8);
  test::check_sketches<u32, 8>(firsts, none, 5, 9, 40, 24, 20);
  test::check_sketches<u32, 8>(firsts, none, 9, 4, 40, 24, 3);
  lockstep::tiles = 1;
  test::check_sketches<u32, 32>(firsts, none, 16, 16, 127, 112, 32);
  test::check_sketches<u64, 32>(firsts, none, 32, 32, 200, 150, 4);
  lockstep::tiles = 4;
  for (const u64 most : {1, 2, 4})
    for (const u32 lowest : {0u, 4u})
      for (const bool tells_runs : {false, true}) {
        test::check_candidates<4>(random, most, lowest, tells_runs);
        if (most == 2) test::check_candidates<32>(random, most, lowest, tells_runs);
      }
  // One lane sorts many hits as a heap.
  std::vector<u64> hits;
  for (u64 at = 0; at < 500; ++at) hits.push_back(at * 7919 % 1000 << 32 | at);
  std::vector<u32> counts(hits.size());
  for (u64 at = 0; at < hits.size(); ++at) counts[at] = static_cast<u32>(hits[at]);
  sort_hits({hits.data(), counts.data()}, hits.size());
  for (u64 at = 0; at < hits.size(); ++at) {
    CHECK(at == 0 || hits[at - 1] < hits[at]);
    CHECK(counts[at] == static_cast<u32>(hits[at]));
  }
  std::printf("sketches: passed\n");
}

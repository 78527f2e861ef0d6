/// Minimizers and their taxa in words of eight bytes, against a map of the standard library.
#define DG_LOCKSTEP
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "host/lockstep.h"
#include "launch/kmer/taxon_map.cuh"

#define CHECK(claim)                                                             \
  do {                                                                           \
    if (!(claim)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

namespace dg::test {
namespace {

/// Parents of a tree with 200 nodes.
std::vector<u32> drawn_parents(std::mt19937& random) {
  std::vector<u32> parents{0, 0};
  while (parents.size() < 200) parents.push_back(1 + random() % (parents.size() - 1));
  return parents;
}

struct Words {
  std::vector<u64> words;
  u64 created = 0, homeless = 0;
  u64 lines, minimizer_bits, lower_bits = 0;

  Words(u64 lines_given, u64 minimizer_bits_given)
      : words(lines_given * 8, ~0ull), lines(lines_given), minimizer_bits(minimizer_bits_given) {
    const u64 hashes = ((u64{1} << minimizer_bits) + lines - 1) / lines;
    while (u64{1} << lower_bits < hashes) ++lower_bits;
  }
  QuotientStorage at() {
    const u64 left = 64 - QuotientTable::kStepBits - lower_bits;
    return {words.data(),           &created, &homeless, lines, minimizer_bits, lower_bits,
            std::min<u64>(left, 32)};
  }
};

/// Letters `l` and `spaces` of minimizers; rows are of few, each often, until so many words have one.
template <int W>
void holds(u64 l, u64 spaces, u64 lines, u64 most) {
  std::mt19937_64 random(l + lines);
  std::mt19937 few(7);
  const std::vector<u32> parents = drawn_parents(few);
  const Tree tree{parents.data(), parents.size()};
  const SpacedBits spaced{spaces};
  Words table(lines, 2 * (l - spaces));
  std::vector<u64> known;
  std::map<u64, u32> expected;
  const u64 ones = (u64{1} << 2 * (l - spaces)) - 1;
  while (known.size() < most) {
    known.push_back(spaced.spread(random() & ones));
    CHECK(spaced.spread(spaced.packed(known.back())) == known.back());
  }
  std::vector<u64> keys;
  std::vector<u32> nodes;
  for (u64 row = 0; row < 3 * most; ++row) {
    const u64 key = known[random() % most];
    const u32 node = 1 + static_cast<u32>(random() % (parents.size() - 1));
    keys.push_back(key);
    nodes.push_back(node);
    const auto [place, is_new] = expected.insert({key, node});
    if (!is_new) place->second = tree.lca(place->second, node);
  }
  taxon_map_fold<W>({table.at(), spaced, tree, keys.data(), nodes.data(), keys.size()});
  CHECK(table.created == expected.size() && table.homeless == 0);

  for (u64 absent = 0; absent < most; ++absent) known.push_back(spaced.spread(random() & ones));
  std::vector<u32> found(known.size(), 77);
  taxon_map_find<W>({table.at(), spaced, known.data(), found.data(), known.size()});
  for (u64 row = 0; row < known.size(); ++row)
    CHECK(found[row] == (expected.count(known[row]) ? expected[known[row]] : 0));

  std::vector<i64> slots;
  for (u64 slot = 0; slot < table.words.size(); ++slot)
    if (table.words[slot] != ~0ull) slots.push_back(static_cast<i64>(slot));
  CHECK(slots.size() == expected.size());
  std::vector<u64> minimizers(slots.size());
  std::vector<u32> taxa(slots.size());
  taxon_map_items({table.at(), spaced, slots.data(), minimizers.data(), taxa.data(), slots.size()});
  std::map<u64, u32> items;
  for (u64 row = 0; row < slots.size(); ++row) items[minimizers[row]] = taxa[row];
  CHECK(items == expected);
}

/// What finds no word is counted, and what did stays.
template <int W>
void overflows() {
  const SpacedBits spaced{0};
  const std::vector<u32> parents{0, 0, 1};
  Words table(2, 20);
  std::vector<u64> keys;
  for (u64 key = 0; key < 20; ++key) keys.push_back(key * 977);
  const std::vector<u32> nodes(keys.size(), 2);
  taxon_map_fold<W>({table.at(), spaced, {parents.data(), 3}, keys.data(), nodes.data(), 20});
  CHECK(table.created == 16 && table.homeless == 4);
}

template <int W>
void run() {
  // Usual minimizers; the longest ones; so short ones that lines have few or no hashes.
  holds<W>(31, 7, 5, 36);
  holds<W>(31, 0, 1 << 16, 40);
  holds<W>(18, 3, 40, 250);
  holds<W>(3, 0, 11, 60);
  holds<W>(1, 0, 2, 4);
  overflows<W>();
}

}  // namespace
}  // namespace dg::test

int main() {
  dg::test::run<1>();
  dg::test::run<4>();
  dg::test::holds<32>(31, 7, 5, 36);
  std::printf("taxon map: passed\n");
}

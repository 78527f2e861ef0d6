/// Super-k-mers of records cut into segments, packed and unpacked again, against the k-mers of each record as
/// strings.
#define DG_LOCKSTEP
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "host/lockstep.h"
#include "launch/kmer/super_kmers.cuh"

#define CHECK(claim)                                                             \
  do {                                                                           \
    if (!(claim)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

namespace dg::test {
namespace {

using Counts = std::map<std::string, u64>;

std::string reversed(const std::string& kmer) {
  std::string made(kmer.rbegin(), kmer.rend());
  for (char& letter : made)
    letter = letter == 'A' ? 'T' : letter == 'C' ? 'G' : letter == 'G' ? 'C' : 'A';
  return made;
}

Counts expected_of(const std::vector<std::string>& records, u64 k, bool canonical) {
  Counts made;
  for (const std::string& record : records)
    for (u64 at = 0; at + k <= record.size(); ++at) {
      std::string kmer = record.substr(at, k);
      for (char& letter : kmer) letter = static_cast<char>(std::toupper(letter));
      if (kmer.find_first_not_of("ACGT") != kmer.npos) continue;
      ++made[canonical ? std::min(kmer, reversed(kmer)) : kmer];
    }
  return made;
}

/// The k-mers that come out of it, as `kmer_text` writes them.
Counts counted(const std::vector<std::string>& records, u64 k, u64 m, u64 parts, u64 segment_rows,
               bool canonical) {
  std::string letters;
  std::vector<i64> offsets{0};
  for (const std::string& record : records) {
    letters += record;
    offsets.push_back(static_cast<i64>(letters.size()));
  }
  const u8* bytes = reinterpret_cast<const u8*>(letters.data());
  const u64 segments = (letters.size() + segment_rows - 1) / segment_rows;
  // Too little room at first; then as much as is needed.
  std::vector<i64> counts_of(segments), room_starts;
  std::vector<u16> room_kmers, room_parts;
  u64 room = 1;
  for (u32 tries = 0; tries < 2; ++tries) {
    room_starts.assign(segments * room, -1);
    room_kmers.assign(segments * room, 0);
    room_parts.assign(segments * room, 0);
    super_kmer_find({bytes, offsets.data(), counts_of.data(), room_starts.data(), room_kmers.data(),
                     room_parts.data(), k, m, parts, records.size(), letters.size(), segment_rows,
                     room, segments});
    for (const i64 count : counts_of) room = std::max(room, static_cast<u64>(count));
  }
  std::vector<i64> starts;
  std::vector<u16> kmers, part;
  for (u64 segment = 0; segment < segments; ++segment)
    for (u64 at = segment * room; at < segment * room + static_cast<u64>(counts_of[segment]);
         ++at) {
      starts.push_back(room_starts[at]);
      kmers.push_back(room_kmers[at]);
      part.push_back(room_parts[at]);
    }
  const u64 rows = starts.size();
  std::vector<i64> packed_at(rows), first(rows);
  i64 nbytes = 0, total = 0;
  for (u64 row = 0; row < rows; ++row) {
    CHECK(part[row] < parts && kmers[row] > 0);
    packed_at[row] = nbytes;
    first[row] = total;
    nbytes += static_cast<i64>((kmers[row] + k + 2) / 4);
    total += kmers[row];
  }
  std::vector<u8> packed(static_cast<u64>(nbytes));
  super_kmer_pack({bytes, starts.data(), kmers.data(), packed_at.data(), packed.data(), k, rows});
  std::vector<u64> low(static_cast<u64>(total)), high(low.size());
  const UnpackArgs unpacking{packed.data(),
                             packed_at.data(),
                             kmers.data(),
                             first.data(),
                             low.data(),
                             high.data(),
                             k,
                             canonical,
                             rows};
  if (k <= 32)
    super_kmer_unpack(unpacking);
  else
    super_kmer_unpack_wide(unpacking);
  std::vector<u64> counts(low.size(), 10);
  std::vector<i64> ends;
  for (u64 row = 0; row < low.size(); ++row) ends.push_back(static_cast<i64>((row + 1) * (k + 4)));
  std::vector<u8> text(low.size() * (k + 4));
  kmer_text({low.data(), high.data(), counts.data(), ends.data(), text.data(), k, low.size()});
  Counts made;
  std::map<std::string, u16> part_of;
  u64 at = 0;
  for (u64 row = 0; row < rows; ++row)
    for (u16 i = 0; i < kmers[row]; ++i, ++at) {
      const char* line = reinterpret_cast<const char*>(text.data()) + at * (k + 4);
      CHECK(std::string(line + k, 4) == "\t10\n");
      const std::string kmer(line, k);
      ++made[kmer];
      // Equal k-mers, of either strand, have one part.
      const auto [known, is_new] = part_of.emplace(std::min(kmer, reversed(kmer)), part[row]);
      CHECK(is_new || known->second == part[row]);
    }
  return made;
}

std::string drawn(std::mt19937& random, u64 length, const std::string& alphabet) {
  std::string made(length, 'A');
  for (char& letter : made) letter = alphabet[random() % alphabet.size()];
  return made;
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  std::mt19937 random(5);
  lockstep::tiles = 4;
  for (const u64 k : {1, 2, 5, 16, 31, 32, 33, 55, 64}) {
    std::vector<std::string> records{"",
                                     test::drawn(random, 300, "ACGTacgt"),
                                     "",
                                     "",
                                     test::drawn(random, 200, "ACGTACGTACGTACGTACGTACGTACGTN"),
                                     test::drawn(random, k, "ACGT"),
                                     test::drawn(random, k - 1, "ACGT"),
                                     std::string(150, 'A'),
                                     std::string(90, 't'),
                                     "ACGUNRYK-\n>*",
                                     test::drawn(random, 80, "AT"),
                                     ""};
    records.push_back(test::reversed(test::drawn(random, 70, "ACGT")));
    for (const bool canonical : {true, false}) {
      const test::Counts expected = test::expected_of(records, k, canonical);
      for (const u64 segment_rows : {7, 64, 5000})
        for (const u64 parts : {1, 3, 65536})
          CHECK(test::counted(records, k, std::min<u64>(k, 6), parts, segment_rows, canonical) ==
                expected);
    }
    CHECK(test::counted({"", ""}, k, 1, 4, 9, true).empty());
  }
  std::printf("super-k-mers: passed\n");
}

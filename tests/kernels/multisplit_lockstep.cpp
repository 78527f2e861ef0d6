/// Stable partition by tiles of every width, against std::stable_sort.
#include <algorithm>
#include <numeric>

#include "lockstep_case.h"

namespace dg::test {
namespace {

template <int W>
void split(u64 rows, u32 parts, u64 segment_rows, std::mt19937& random) {
  std::vector<u32> destinations(rows);
  for (auto& each : destinations) each = static_cast<u32>(random()) % parts;
  const u64 segments = (rows + segment_rows - 1) / segment_rows;
  std::vector<u64> counters(segments * parts);
  std::vector<i64> order(rows, -1), expected(rows);
  MultisplitArgs args{destinations.data(), counters.data(), order.data(), rows, parts,
                      segment_rows,        segments};
  multisplit_count<W>(args);
  u64 place = 0;
  for (u32 part = 0; part < parts; ++part) {
    for (u64 segment = 0; segment < segments; ++segment) {
      const u64 count = counters[segment * parts + part];
      counters[segment * parts + part] = place;
      place += count;
    }
  }
  CHECK(place == rows);
  multisplit_scatter<W>(args);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](i64 left, i64 right) { return destinations[left] < destinations[right]; });
  CHECK(order == expected);
}

}  // namespace
}  // namespace dg::test

int main() {
  dg::test::for_each_width([]<int W>() {
    std::mt19937 random(W);
    dg::test::split<W>(1, 1, 32, random);
    dg::test::split<W>(300, 2, 64, random);
    dg::test::split<W>(500, 7, 100, random);
    dg::test::split<W>(257, 300, 256, random);
  });
  std::printf("multisplit: passed\n");
}

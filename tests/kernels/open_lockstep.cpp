/// Insert, find and erase by tiles of every width; bulk builds of sorted batches; the order of buckets.
#include "open_case.h"

namespace dg::test {
namespace {

/// A sorted batch into an empty table, whose buckets are all full at last.
template <class Key, int W>
void settles(u64 table_segments, u64 segment_shift) {
  std::mt19937_64 random(W);
  const u64 slots = (table_segments << segment_shift) * Slot<Key, u64>::per_bucket;
  for (const u64 wanted : {slots / 2, slots}) {
    TableMemory<Key, u64> settled(table_segments, segment_shift);
    std::map<u64, Key> by_hash;
    for (const Key key : {Mark<Key>::empty, Mark<Key>::erased})
      by_hash.emplace(hash_key(key, settled.storage.seed), key);
    while (by_hash.size() < wanted + 2) {
      const Key key = static_cast<Key>(random());
      if (key < Mark<Key>::erased) by_hash.emplace(hash_key(key, settled.storage.seed), key);
    }
    Batch<Key, u64> batch({}, 3);
    for (const auto& [hash, key] : by_hash) {
      batch.values.push_back(value_for<u64>(3, batch.keys.size()));
      batch.keys.push_back(key);
    }
    const u64 rows = batch.keys.size(), segment = 45;
    const u64 segments = (rows + segment - 1) / segment;
    std::vector<u64> later(rows), late(segments);
    const OpenSettleArgs args{settled.storage, batch.keys.data(), batch.values.data(),
                              later.data(),    late.data(),       rows,
                              segment,         segments};
    open_settle<Key, u64, W>(args);
    u64 told = 0;
    for (const u64 each : late) told += each;
    CHECK(told >= 2 && told < rows);
    open_settle_late<Key, u64, W>(args);
    std::vector<u8> found;
    CHECK((find<Key, u64, W>(settled, batch.keys, found)) == batch.values);
    for (const u8 flag : found) CHECK(flag == 1);
    u64 stored = 0;
    for (u64 slot = 0; slot < slots; ++slot)
      stored += OpenTable<Key, u64>{settled.storage}.value_at(slot)[0] != ~0ull;
    CHECK(stored == wanted);
  }
}

/// Every bucket, in the same order for every width; the first ones rise with the hash.
template <u32 Width>
void probe_order(std::mt19937_64& random, u64 segments, u64 segment_shift) {
  const u64 buckets = segments << segment_shift;
  const u64 hash = random();
  const auto again = [&] { return hash; };
  std::vector<u64> order;
  std::vector<bool> seen(buckets);
  u64 left = buckets;
  SegmentedProbe<1> one(buckets, segment_shift, hash);
  for (; !one.ended(); one.next()) {
    const u64 bucket = one.bucket(0, again);
    CHECK(bucket < buckets);
    // The first stay is in one segment, and visits no bucket twice.
    const bool strayed = strays(static_cast<u32>(order.size()), segment_shift);
    CHECK(strayed || (!seen[bucket] && bucket >> segment_shift == one.first >> segment_shift));
    left -= !seen[bucket];
    seen[bucket] = true;
    order.push_back(bucket);
  }
  CHECK(left == 0);
  CHECK(order.size() <= 3 * buckets);
  CHECK(order[0] == mulhi(hash, buckets));
  SegmentedProbe<Width> probe(buckets, segment_shift, hash);
  for (u64 place = 0; !probe.ended(); probe.next(), place += probe.buckets_at_once)
    for (u32 lane = 0; lane < Width; ++lane) {
      CHECK(probe.bucket(lane, again) < buckets);
      if (place + lane / 4 < order.size())
        CHECK(probe.bucket(lane, again) == order[place + lane / 4]);
    }
}

/// Keys whose hashes are close together go all over the table once they leave their first segment.
void close_hashes(u64 step) {
  constexpr u64 segments = 100, shift = 4, buckets = segments << shift;
  std::vector<u64> visits(segments);
  for (u64 i = 0; i < 10'000; ++i) {
    const u64 hash = i * step;
    SegmentedProbe<1> probe(buckets, shift, hash);
    probe.visited = 1u << stay_shift_of(shift);
    ++visits[probe.bucket(0, [&] { return hash; }) >> shift];
  }
  // 100 on average, 200 where one segment stands for two of 128 places.
  for (const u64 each : visits) CHECK(each > 30 && each < 300);
}

template <class Key>
void all_settles() {
  for_each_width([]<int W>() {
    settles<Key, W>(5, 0);
    settles<Key, W>(3, 2);
  });
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::for_each_width([]<int W>() {
    std::mt19937_64 random(W);
    for (const u64 segments : {1, 2, 3, 8, 37})
      for (u64 shift = 0; shift <= 10; ++shift) test::probe_order<W>(random, segments, shift);
  });
  // Neighbours, and those that differ in the middle bits alone.
  for (const u64 step : {1ull, 1ull << 20, 1ull << 33}) test::close_hashes(step);
  test::all_settles<u32>();
  test::all_settles<u64>();
  lockstep::tiles = 2;
  test::late_answers<u32, u32, 8>();
  test::late_answers<u64, void, 16>();
  std::printf("late answers: passed\n");
  test::all_widths<u32, void>("u32");
  test::all_widths<u32, u32>("u32 -> u32");
  test::all_widths<u64, u32>("u64 -> u32");
  test::all_widths<u64, u64>("u64 -> u64");
}

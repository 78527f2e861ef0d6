/// Slab pools and slab tables of every layout, worked on by tiles of 1, 8 and 32 lanes.
#include <algorithm>
#include <set>

#include "slab_case.h"
// Behind the case, which says that lanes are in lockstep.
#include "device/view.cuh"

namespace dg::test {
namespace {

/// Every slab is given out once, and again when it came back; then there are no more.
template <int W>
void pool_gives_each_slab_once(bool light) {
  SlabPoolMemory memory(2, light);
  memory.add(W == 1 ? ~0ull : 100);
  memory.add(50);
  const u64 room = memory.bitmaps.size() * 32 - memory.taken();
  const auto take = [&](u64 rows) {
    std::vector<u32> addresses(rows);
    const u64 segment = 40;
    slab_allocate<W>(
        {memory.pool(), addresses.data(), rows, segment, (rows + segment - 1) / segment});
    return addresses;
  };
  const auto first = take(room - 7);
  std::set<const char*> seen;
  for (const u32 address : first) {
    CHECK(address != kNoSlab);
    CHECK(seen.insert(SlabAlloc{memory.pool()}.slab(address)).second);
  }
  auto rest = take(20);
  rest.erase(std::remove(rest.begin(), rest.end(), kNoSlab), rest.end());
  CHECK(rest.size() == 7 && memory.taken() == memory.bitmaps.size() * 32);
  slab_release({memory.pool(), first.data(), first.size()});
  slab_release({memory.pool(), rest.data(), rest.size()});
  CHECK(memory.bitmaps.size() * 32 - memory.taken() == room);
  for (const u32 address : take(room)) CHECK(address != kNoSlab);
  SlabPoolMemory none(1, light);
  std::vector<u32> refused(9);
  slab_allocate<W>({none.pool(), refused.data(), 9, 4, 3});
  for (const u32 address : refused) CHECK(address == kNoSlab);
}

/// A slab of the last memory block of the last super block is found again by its address.
void addresses_reach_everywhere() {
  const SlabPool pool{nullptr, nullptr, nullptr, 3 << 14, 1 << 14};
  void* bases[3] = {};
  SlabPool super = pool;
  super.bases = bases;
  for (const u32 block : {0u, 1u, 16383u, 16384u, 49151u})
    for (const u32 unit : {0u, 1023u}) {
      const u32 address = SlabAlloc{super}.address_of(block, unit);
      CHECK(address % 1024 == unit && (address >> 10 & 0x3fffu) == block % 16384);
      CHECK(address >> 24 == block / 16384 && SlabAlloc{super}.block_of(address) == block);
      CHECK(SlabAlloc{pool}.block_of(SlabAlloc{pool}.address_of(block, unit)) == block);
    }
}

template <class Key>
std::vector<Key> numbered_keys(u64 n, u64 from = 0) {
  std::vector<Key> keys(n);
  for (u64 i = 0; i < n; ++i) keys[i] = static_cast<Key>((from + i) * 7);
  return keys;
}

/// Long chains, a pool that runs dry on the way, a super block that comes between, a flush that gives back.
template <class Table, int W>
void chains_grow_and_shrink(bool light) {
  using Key = typename Table::Key;
  const u64 n = 6 * Table::per_slab;
  MethodCase<Table> table(1);
  auto& memory = table.memory;
  memory.slabs = empty_slabs(2);
  memory.pool = SlabPoolMemory(1, light);
  memory.pool.add(1);
  memory.storage = {memory.pool.pool(), memory.slabs.data(), &memory.state, 2, 3};
  auto keys = numbered_keys<Key>(n);
  keys.push_back(Mark<Key>::empty);
  keys.push_back(Mark<Key>::erased);

  const auto pending = table.template insert<W>(keys, 1, OnExisting::keep);
  CHECK(!pending.empty() && memory.pool.taken() == 1024);
  table.template check_find<W>(keys);
  memory.add_room();
  std::vector<Key> rest;
  for (const u64 row : pending) rest.push_back(keys[row]);
  CHECK(table.template insert<W>(rest, 2, OnExisting::keep).empty());
  table.template check_find<W>(keys);
  table.template check_items<W>();

  const auto used = [&] {
    u64 total = 0;
    for (const u32 slabs : memory.chains()) total += slabs;
    // Bits that were set from the start are no slabs.
    CHECK(total - 2 == memory.pool.taken() - 1023);
    return total;
  };
  const u64 before = used();
  CHECK(before >= 6 && before <= 7);

  std::vector<Key> gone;
  for (u64 i = 0; i < keys.size(); ++i)
    if (i % 5) gone.push_back(keys[i]);
  table.template erase<W>(gone);
  u64 marks = memory.state.erased;
  CHECK(marks > n / 2 && used() == before);
  table.template check_find<W>(keys);

  u64 released = 0;
  verb::flush<Table, W>({memory.storage, &released, 2});
  CHECK(memory.state.erased == 0 && used() == before - released);
  CHECK(before - released >= 2 && before - released <= 3);
  table.template check_find<W>(keys);
  table.template check_items<W>();
  // What came back is empty: chains grow from it as from new slabs.
  CHECK(table.template insert<W>(keys, 3, OnExisting::overwrite).empty());
  table.template check_find<W>(keys);
  table.template check_items<W>();
  table.template erase<W>(keys);
  released = 0;
  verb::flush<Table, W>({memory.storage, &released, 2});
  CHECK(used() == 2);
  for (const auto& block : memory.pool.super_blocks)
    for (const auto& slab : *block)
      for (const u32 word : slab.word) CHECK(word == ~0u);
  for (const auto& slab : memory.slabs)
    for (const u32 word : slab.word) CHECK(word == ~0u);
}

/// Several values a key: in the table as often as they were added, near and far from the first slab.
template <class Lists, int W>
void lists_hold_every_value(bool light) {
  using Key = typename Lists::Key;
  using Value = typename Lists::Value;
  MethodMemory<Lists> memory(2, 5, light, 3);
  std::map<Key, std::multiset<Value>> model;
  std::mt19937 random(W);
  const auto append = [&](u64 n, u64 batch) {
    std::vector<Key> keys(n);
    std::vector<Value> values(n);
    for (u64 row = 0; row < n; ++row) {
      keys[row] = static_cast<Key>(random() % 3 ? 1 : random() % 6);
      values[row] = static_cast<Value>(batch << 16 | row % 40);
    }
    std::vector<u64> rows(n), pending(n);
    for (u64 row = 0; row < n; ++row) rows[row] = row;
    for (u32 launches = 0; !rows.empty(); ++launches) {
      CHECK(launches < 3);
      memory.state.pending = 0;
      verb::append<Lists, W>({memory.storage, keys.data(), values.data(), rows.data(), nullptr,
                              pending.data(), rows.size(), 0, 0});
      rows.assign(pending.begin(), pending.begin() + static_cast<i64>(memory.state.pending));
      if (!rows.empty()) memory.add_room();
    }
    for (u64 row = 0; row < n; ++row) model[keys[row]].insert(values[row]);
  };
  const auto check = [&] {
    std::vector<Key> keys;
    for (Key key = 0; key < 8; ++key) keys.push_back(key);
    std::vector<u64> counts(keys.size());
    verb::count<Lists, W>({memory.storage, keys.data(), counts.data(), keys.size()});
    std::vector<u64> offsets(keys.size());
    u64 total = 0;
    for (u64 i = 0; i < keys.size(); ++i) {
      CHECK(counts[i] == model[keys[i]].size());
      offsets[i] = total;
      total += counts[i];
    }
    CHECK(total == memory.state.occupied);
    std::vector<Value> values(total);
    verb::gather<Lists, W>({memory.storage,
                            keys.data(),
                            offsets.data(),
                            values.data(),
                            {nullptr, nullptr},
                            keys.size()});
    for (u64 i = 0; i < keys.size(); ++i) {
      const auto from = values.begin() + static_cast<i64>(offsets[i]);
      CHECK(std::multiset<Value>(from, from + static_cast<i64>(counts[i])) == model[keys[i]]);
    }
    u64 slabs = 0, read = 0;
    verb::probes<Lists, W>({memory.storage, keys.data(), &read, keys.size()});
    for (const u32 each : memory.chains()) slabs += each;
    CHECK(read >= keys.size() && read < keys.size() * slabs);
    u64 live = 0;
    const Lists table{memory.storage};
    for (u64 place = 0; place < table.places(); ++place) {
      Key key;
      Value value;
      live += table.entry(place, key, value);
    }
    CHECK(live == total);
  };
  append(W == 1 ? 400 : 110, 1);
  check();
  std::vector<Key> gone{1, 4, 1, 77};
  std::vector<u8> erased(gone.size());
  verb::erase<Lists, W>({memory.storage, gone.data(), erased.data(), gone.size()});
  CHECK(memory.state.erased == model[1].size() + model[4].size());
  model.erase(1);
  model.erase(4);
  check();
  u64 released = 0;
  verb::flush<Lists, W>({memory.storage, &released, 2});
  CHECK(memory.state.erased == 0 && released > 0);
  check();
  append(40, 2);
  check();
}

/// Kernels of users append to the reserved keys, too, as long as there is room.
template <class Lists, int W>
void views_append_to_reserved_keys() {
  using Key = typename Lists::Key;
  using Value = typename Lists::Value;
  constexpr u64 n = 36, places = 20;
  MethodMemory<Lists> memory(2, 5, false, 1024);
  struct {
    device::SideRoom head;
    Value values[places];
  } room{{places, 0}, {}};
  memory.state.side_value[0] = reinterpret_cast<u64>(&room);
  const device::View<Lists> view{memory.storage};
  const auto key_of = [](u64 row) {
    return row % 3 == 2 ? static_cast<Key>(row) : static_cast<Key>(Mark<Key>::empty - row % 3);
  };
  std::vector<u8> stored(n);
  for_each_lane<W>(n, [&](auto tile, u64 row, bool asked) {
    serve_lanes(tile, asked, [&](u32 source) {
      const u64 its = tile.shuffle(row, source);
      const Outcome got = view.append(tile, key_of(its), static_cast<Value>(100 + its));
      if (tile.lane() == source) stored[row] = got == Outcome::created;
    });
  });
  std::multiset<u64> wanted[2], seen[2];
  for (u64 row = 0; row < n; ++row) {
    if (row % 3 == 2)
      CHECK(stored[row] == 1);
    else if (stored[row])
      wanted[row % 3].insert(100 + row);
  }
  const u64 front = room.head.taken & 0xffffffff, back = room.head.taken >> 32;
  CHECK(front + back == places);
  for (u64 i = 0; i < places; ++i) seen[i >= front].insert(room.values[i]);
  for (u32 index = 0; index < 2; ++index) {
    CHECK(seen[index] == wanted[index]);
    CHECK(memory.state.side_present[index] == wanted[index].size());
  }
  CHECK(memory.state.pending == 2 * n / 3 - places && memory.state.occupied == n / 3);
}

/// The paper's figures, of chains that are walked: n keys of B buckets and M a slab fill so much of the slabs.
template <class Table>
void fills_slabs(double chain, double wanted) {
  using Key = typename Table::Key;
  const u64 n = 6000;
  const u64 buckets = static_cast<u64>(static_cast<double>(n) / (Table::per_slab * chain)) + 1;
  MethodMemory<Table> memory(buckets, 11, false, 1024);
  memory.add_room();
  const auto keys = numbered_keys<Key>(n, 1000);
  std::vector<typename Table::Value> values(n);
  verb::insert<Table, 1>(
      {memory.storage, keys.data(), values.data(), nullptr, nullptr, nullptr, n, 0, 0});
  CHECK(memory.state.pending == 0);
  u64 slabs = 0;
  for (const u32 each : memory.chains()) slabs += each;
  const double filled =
      static_cast<double>(n * Table::Slots::nbytes) / static_cast<double>(kSlabBytes * slabs);
  CHECK(filled > wanted * 0.96 && filled < wanted * 1.04);
}

template <int W>
void one_width(u32 tiles) {
  lockstep::tiles = tiles;
  pool_gives_each_slab_once<W>(false);
  pool_gives_each_slab_once<W>(true);
  chains_grow_and_shrink<Slab<u32, u32>, W>(false);
  chains_grow_and_shrink<Slab<u64, u64>, W>(true);
  if (W < 32) {
    chains_grow_and_shrink<Slab<u32, void>, W>(true);
    chains_grow_and_shrink<Slab<u64, void>, W>(false);
  }
  lists_hold_every_value<SlabLists<u32, u32>, W>(false);
  lists_hold_every_value<SlabLists<u64, u64>, W>(true);
  views_append_to_reserved_keys<SlabLists<u32, u32>, W>();
  views_append_to_reserved_keys<SlabLists<u64, u64>, W>();
  std::printf("slabs, %d lanes: passed\n", W);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  using namespace dg::test;
  addresses_reach_everywhere();
  lockstep::tiles = 2;
  fills_slabs<Slab<u32, u32>>(0.2, 0.187);
  fills_slabs<Slab<u32, u32>>(0.7, 0.614);
  fills_slabs<Slab<u32, u32>>(1.0, 0.654);
  fills_slabs<Slab<u64, u64>>(0.2, 0.175);
  fills_slabs<Slab<u64, u64>>(0.7, 0.545);
  fills_slabs<Slab<u64, u64>>(1.0, 0.622);
  one_width<1>(6);
  one_width<8>(3);
  one_width<32>(2);
}

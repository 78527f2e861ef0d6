/// The memory of a slab table: buckets, super blocks and their bitmaps.
#pragma once

#include <memory>

#include "method_case.h"

namespace dg::test {

struct alignas(kSlabBytes) SlabWords {
  u32 word[kSlabBytes / 4];
};

inline std::vector<SlabWords> empty_slabs(u64 count) {
  std::vector<SlabWords> slabs(count);
  for (auto& slab : slabs)
    for (auto& word : slab.word) word = ~0u;
  return slabs;
}

/// A pool of super blocks of so many memory blocks, or its light form with all in one array. Slabs that nobody
/// may have are marked as taken from the start, so that small pools can be tried.
struct SlabPoolMemory {
  bool light;
  u64 each;
  std::vector<std::unique_ptr<std::vector<SlabWords>>> super_blocks;
  std::vector<void*> bases;
  std::vector<u32> bitmaps;

  SlabPoolMemory(u64 blocks_each, bool is_light) : light(is_light), each(blocks_each) {}

  /// More memory blocks, of which the first `usable` slabs may be taken.
  void add(u64 usable = ~0ull) {
    const u64 more = each * kBlockSlabs, before = bitmaps.size() * 32;
    if (light && !super_blocks.empty()) {
      auto& only = *super_blocks[0];
      auto larger = empty_slabs(only.size() + more);
      std::copy(only.begin(), only.end(), larger.begin());
      only = std::move(larger);
    } else {
      super_blocks.push_back(std::make_unique<std::vector<SlabWords>>(empty_slabs(more)));
    }
    bitmaps.resize(bitmaps.size() + each * kBlockWords, ~0u);
    for (u64 unit = 0; unit < more && unit < usable; ++unit)
      bitmaps[(before + unit) / 32] &= ~(1u << (before + unit) % 32);
    bases.clear();
    for (auto& block : super_blocks) bases.push_back(block->data());
  }

  SlabPool pool() {
    const u64 blocks = bitmaps.size() / kBlockWords;
    if (light) return {bases.empty() ? nullptr : bases[0], nullptr, bitmaps.data(), blocks, blocks};
    return {nullptr, bases.data(), bitmaps.data(), blocks, each};
  }

  u64 taken() const {
    u64 count = 0;
    for (const u32 word : bitmaps) count += count_ones(word);
    return count;
  }
};

template <class Table>
struct MethodMemory<Table, SlabStorage> {
  static constexpr u64 unit_slots = Table::per_slab;

  std::vector<SlabWords> slabs;
  SlabPoolMemory pool;
  TableState state = cleared_state();
  SlabStorage storage;

  explicit MethodMemory(u64 rows, u64 seed = 1)
      : MethodMemory((rows + Table::per_slab - 1) / Table::per_slab, seed, false, 1024) {}

  MethodMemory(u64 buckets, u64 seed, bool light, u64 usable)
      : slabs(empty_slabs(buckets)), pool(1, light) {
    pool.add(usable);
    storage = {pool.pool(), slabs.data(), &state, buckets, seed};
  }
  MethodMemory(const MethodMemory&) = delete;

  void add_room() {
    pool.add();
    storage.pool = pool.pool();
  }

  /// The slabs of each chain, walked.
  std::vector<u32> chains() const {
    std::vector<u32> lengths(slabs.size());
    slab_chains({storage, lengths.data(), lengths.size()});
    return lengths;
  }
};

}  // namespace dg::test

/// Batches for Bloom filters. A row is a key.
#pragma once

#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "table/bloom.cuh"

namespace dg {

struct BloomAddArgs {
  BloomBlocks filter;
  const void* keys;
  u64 n;

  DG_FIELDS(filter, keys, n)
};

struct BloomTestArgs {
  BloomBlocks filter;
  const void* keys;
  u8* passed;  // 1 where the key may have been added
  u64 n;

  DG_FIELDS(filter, keys, passed, n)
};

/// The lanes of a tile change one block at once, which is one request.
template <class Key, int W>
DG_KERNEL bloom_add(BloomAddArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<W>(
      args.n, [&](auto tile, u64 row) { args.filter.add(tile, keys[row]); },
      [&](u64 row) { args.filter.prefetch_for(keys[row]); });
}

template <class Key>
DG_KERNEL bloom_test(BloomTestArgs args) {
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<1>(
      args.n, [&](auto, u64 row) { args.passed[row] = args.filter.test(keys[row]); },
      [&](u64 row) { args.filter.prefetch_for(keys[row]); });
}

}  // namespace dg

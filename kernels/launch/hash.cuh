/// Hashes of columns, and which part owns a hash. A row is an element; tiles have one lane.
#pragma once

#include "core/hash.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct HashKeysArgs {
  const void* keys;
  u64* hashes;
  u64 n;
  u64 seed;
};

struct HashStringsArgs {
  const i64* offsets;  // n + 1, into `bytes`
  const u8* bytes;
  u64* hashes;
  u64 n;
  u64 seed;
};

struct HashCombineArgs {
  u64* hashes;      // of the columns so far; replaced
  const u64* next;  // of the next column
  u64 n;
};

struct OwnerOfArgs {
  const u64* hashes;
  u32* owners;
  u64 n;
  u64 parts;
};

template <class Key>
DG_KERNEL hash_keys(HashKeysArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    args.hashes[row] = hash_key(static_cast<const Key*>(args.keys)[row], args.seed);
  });
}

DG_KERNEL hash_strings(HashStringsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const i64 first = args.offsets[row];
    const u64 nbytes = static_cast<u64>(args.offsets[row + 1] - first);
    args.hashes[row] = hash_bytes(args.bytes + first, nbytes, args.seed);
  });
}

DG_KERNEL hash_combine(HashCombineArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    args.hashes[row] = combine_hashes(args.hashes[row], args.next[row]);
  });
}

DG_KERNEL owner_of(OwnerOfArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    args.owners[row] = owner_of_hash(args.hashes[row], args.parts);
  });
}

}  // namespace dg

/// Hashes of columns, the words of floats, and which part owns a hash. A row is an element; tiles have
/// one lane.
#pragma once

#include "core/fields.cuh"
#include "core/hash.cuh"
#include "grid/for_each.cuh"

namespace dg {

struct HashKeysArgs {
  const void* keys;
  u64* hashes;
  u64 n;
  u64 seed;

  DG_FIELDS(keys, hashes, n, seed)
};

struct HashStringsArgs {
  const i64* offsets;  // n + 1, into `bytes`
  const u8* bytes;
  u64* hashes;
  u64 n;
  u64 seed;

  DG_FIELDS(offsets, bytes, hashes, n, seed)
};

struct HashCombineArgs {
  u64* hashes;      // of the columns so far; replaced
  const u64* next;  // of the next column
  u64 n;

  DG_FIELDS(hashes, next, n)
};

struct OwnerOfArgs {
  const u64* hashes;
  u32* owners;
  u64 n;
  u64 parts;

  DG_FIELDS(hashes, owners, n, parts)
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

/// Patterns of the floats' width, which is that of a word or, widened with zeros, less.
struct FloatWordsArgs {
  const void* floats;
  void* words;
  u64 n;
  u64 sign;  // the pattern of -0.0
  u64 infinity;
  u64 nan;

  DG_FIELDS(floats, words, n, sign, infinity, nan)
};

/// -0.0 becomes 0.0, and every NaN the same one.
template <class Word>
DG_KERNEL float_words(FloatWordsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const Word word = static_cast<const Word*>(args.floats)[row];
    const Word magnitude = word & static_cast<Word>(args.sign - 1);
    static_cast<Word*>(args.words)[row] = magnitude == 0              ? Word{0}
                                          : magnitude > args.infinity ? static_cast<Word>(args.nan)
                                                                      : word;
  });
}

}  // namespace dg

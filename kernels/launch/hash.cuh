/// Hashes of columns, the words of floats and short strings, equal strings, and which part owns a hash.
/// A row is an element; tiles have one lane.
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

/// Strings of a column, or rows that each have one of them.
struct Strings {
  const i64* offsets;  // into `bytes`, one more than strings
  const u8* bytes;
  const i64* rows;  // the string of each row, below 0 a null; null: its own number
  const u8* nulls;  // which strings are null; null: none

  DG_FIELDS(offsets, bytes, rows, nulls)

  /// The string of a row, -1 for a null.
  DG_FN i64 number(u64 row) const {
    const i64 string = rows ? rows[row] : static_cast<i64>(row);
    return string < 0 || (nulls && nulls[string]) ? -1 : string;
  }
  DG_FN const u8* begin(i64 string) const { return bytes + offsets[string]; }
  DG_FN u64 nbytes(i64 string) const {
    return static_cast<u64>(offsets[string + 1] - offsets[string]);
  }
};

struct HashStringsArgs {
  Strings strings;
  u64* hashes;
  u64 n;
  u64 seed;

  DG_FIELDS(strings, hashes, n, seed)
};

struct StringWordsArgs {
  const i64* offsets;  // n + 1, into `bytes`
  const u8* bytes;
  u64* words;
  u32* others;  // set where a string has another length
  u64 n;
  u64 length;  // 8: of every string; 7: the most

  DG_FIELDS(offsets, bytes, words, others, n, length)
};

struct EqualStringsArgs {
  Strings left;
  Strings right;
  u8* equal;
  u64 n;

  DG_FIELDS(left, right, equal, n)
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
    const Strings& all = args.strings;
    const i64 string = all.number(row);
    args.hashes[row] =
        string < 0 ? kNullHash : hash_bytes(all.begin(string), all.nbytes(string), args.seed);
  });
}

/// Strings of up to 7 bytes with their length, or of 8 bytes, as numbers.
DG_KERNEL string_words(StringWordsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const i64 first = args.offsets[row];
    const u64 nbytes = static_cast<u64>(args.offsets[row + 1] - first);
    if (nbytes > args.length || (args.length == 8 && nbytes < 8)) {
      *args.others = 1;
      return;
    }
    const u8* bytes = args.bytes + first;
    u64 word;
    if (nbytes != 0 && first + 8 <= args.offsets[args.n]) {
      word = word_of_bytes(bytes, 8) & (~u64{0} >> (64 - 8 * nbytes));
    } else {
      word = word_of_bytes(bytes, nbytes);
    }
    args.words[row] = args.length == 8 ? word : word | nbytes << 56;
  });
}

/// Two nulls are equal.
DG_KERNEL equal_strings(EqualStringsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const i64 left = args.left.number(row), right = args.right.number(row);
    if (left < 0 || right < 0) {
      args.equal[row] = left == right;
      return;
    }
    const u64 nbytes = args.left.nbytes(left);
    bool equal = nbytes == args.right.nbytes(right);
    const u8 *one = args.left.begin(left), *two = args.right.begin(right);
    for (u64 at = 0; equal && at < nbytes; at += 8) {
      // The last word overlaps the one before where it can.
      if (at != 0 && at + 8 > nbytes) at = nbytes - 8;
      equal = word_of_bytes(one + at, nbytes - at) == word_of_bytes(two + at, nbytes - at);
    }
    args.equal[row] = equal;
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

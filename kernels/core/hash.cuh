/// Hash functions, the same bits on both targets. Not against an adversary who knows the seed.
#pragma once

#include "core/platform.cuh"
#include "core/wide_word.cuh"

namespace dg {

/// The finalizer of MurmurHash3: a bijection whose every output bit depends on every input bit.
DG_FN u64 mix(u64 word) {
  word ^= word >> 33;
  word *= 0xff51afd7ed558ccdull;
  word ^= word >> 33;
  word *= 0xc4ceb9fe1a85ec53ull;
  return word ^ (word >> 33);
}

/// Spreads user seeds, which are small numbers, over 64 bits (splitmix64's increment).
DG_FN u64 spread_seed(u64 seed) { return mix(seed + 0x9e3779b97f4a7c15ull); }

/// `hash_key` by a seed that is spread already.
template <class Key>
DG_FN u64 hash_salted(Key key, u64 salt) {
  return mix(static_cast<u64>(key) ^ salt);
}
DG_FN u64 hash_salted(u128 key, u64 salt) { return mix(mix(key.low ^ salt) ^ key.high); }

/// The bits of a key as every table and every partition hashes them: different keys of at most eight
/// bytes never collide in 64 bits.
template <class Key>
DG_FN u64 hash_key(Key key, u64 seed) {
  return hash_salted(key, spread_seed(seed));
}

/// Depends on the order: combine(a, b) and combine(b, a) differ.
DG_FN u64 combine_hashes(u64 first, u64 second) {
  return mix((first ^ (first >> 29)) * 0x9e3779b97f4a7c15ull + second);
}

/// The first bytes at `bytes`, up to eight, as a little-endian word.
DG_FN u64 word_of_bytes(const u8* bytes, u64 nbytes) {
#if DG_GPU
  // One or two aligned words hold all of them. Each has one of these bytes, so both may be read.
  if (nbytes == 0) return 0;
  const u64 before = reinterpret_cast<u64>(bytes) % 8;
  const u64* words = reinterpret_cast<const u64*>(bytes - before);
  u64 word = words[0] >> (8 * before);
  if (before + (nbytes < 8 ? nbytes : 8) > 8) word |= words[1] << (64 - 8 * before);
  return nbytes < 8 ? word & ((u64{1} << (8 * nbytes)) - 1) : word;
#else
  u64 word = 0;
  if (nbytes >= 8) {  // a loop of known length becomes one load
    for (u64 i = 0; i < 8; ++i) word |= static_cast<u64>(bytes[i]) << (8 * i);
  } else {
    for (u64 i = 0; i < nbytes; ++i) word |= static_cast<u64>(bytes[i]) << (8 * i);
  }
  return word;
#endif
}

/// Little-endian words of eight bytes; the length is mixed in, so that trailing zero bytes count.
DG_FN u64 hash_bytes(const u8* bytes, u64 nbytes, u64 seed) {
  u64 hash = spread_seed(seed) ^ mix(nbytes);
  for (u64 at = 0; at < nbytes; at += 8) {
    hash = combine_hashes(hash, word_of_bytes(bytes + at, nbytes - at));
  }
  return hash;
}

/// Of a null string.
inline constexpr u64 kNullHash = 0x9e3779b97f4a7c15ull;

/// Which of `parts` owns a hash. Takes the top bits, as SegmentedProbe does: owners need another seed than
/// tables.
DG_FN u32 owner_of_hash(u64 hash, u64 parts) { return static_cast<u32>(mulhi(hash, parts)); }

/// The same in two short products.
DG_FN u32 owner_of_hash(u64 hash, u32 parts) {
  const u64 low = (hash & 0xffffffffull) * parts >> 32;
  return static_cast<u32>(((hash >> 32) * parts + low) >> 32);
}

}  // namespace dg

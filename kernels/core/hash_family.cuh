/// The hash functions of Alcantara's thesis (§3.1.2): (f(a, k) + b) mod p, with f = a·k or a XOR k.
#pragma once

#include "core/fields.cuh"
#include "core/hash.cuh"

namespace dg {

inline constexpr u32 kLargestPrime = 4294967291u;  // of 32 bits
inline constexpr u32 kCuckooPrime = 334214459u;
inline constexpr u32 kBucketPrime = 1900813u;

enum class Family : u32 { multiply, exclusive_or };

/// Python draws it: a from 1 to p - 1, b from 0 to p - 1.
struct HashFunction {
  u32 a;
  u32 b;

  DG_FIELDS(a, b)
};

/// The 32 bits of a key that the functions take: the key itself where it has no more and `printed` holds,
/// as in the thesis. Else keys that agree modulo p would meet whatever a and b are, so they are mixed first.
template <class Key>
DG_FN u32 hashed_bits(Key key, u64 seed, bool printed) {
  if (sizeof(Key) == 4 && printed) return static_cast<u32>(key);
  return static_cast<u32>(hash_key(key, seed) >> 32);
}

/// With products of 64 bits, as open addressing needs them.
DG_FN u32 hashed_long(HashFunction function, Family family, u32 bits, u32 prime) {
  if (family == Family::exclusive_or)
    return static_cast<u32>((u64{function.a ^ bits} + function.b) % prime);
  return static_cast<u32>((u64{function.a} * bits + function.b) % prime);
}

/// With products of 32 bits that wrap around, as the thesis' cuckoo tables have them.
DG_FN u32 hashed_short(HashFunction function, Family family, u32 bits, u32 prime) {
  const u32 first = family == Family::exclusive_or ? function.a ^ bits : function.a * bits;
  return (first + function.b) % prime;
}

}  // namespace dg

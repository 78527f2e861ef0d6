/// Letters as bases of 2 bits, A0 C1 G2 T3, whatever their case.
#pragma once

#include "core/platform.cuh"

namespace dg {

using u16 = unsigned short;

/// What stands for no base: N, the other letters of IUPAC, U, gaps, anything else.
inline constexpr u32 kNoBase = 4;

DG_FN u32 base_of(u8 letter) {
  const u32 upper = letter & 0xdfu;
  // A, C, T and G have these two bits 0, 1, 2 and 3.
  const u32 order = upper >> 1 & 3, base = order ^ order >> 1;
  return (0x54474341u >> 8 * base & 0xff) == upper ? base : kNoBase;
}

/// Eight letters that are bases, the first one lowest, as 16 bits in that order.
DG_FN u32 bases_of(u64 letters) {
  const u64 order = letters >> 1 & 0x0303030303030303ull;
  u64 bases = order ^ (order >> 1 & 0x0101010101010101ull);
  bases = (bases | bases >> 6) & 0x000f000f000f000full;
  bases = (bases | bases >> 12) & 0x000000ff000000ffull;
  return static_cast<u32>(bases | bases >> 24) & 0xffff;
}

/// Sixteen bases in the other order.
DG_FN u32 reversed_bases(u32 bases) {
#if DG_GPU
  bases = __brev(bases);
  return (bases >> 1 & 0x55555555u) | (bases & 0x55555555u) << 1;
#else
  bases = bases >> 16 | bases << 16;
  bases = (bases >> 8 & 0x00ff00ffu) | (bases & 0x00ff00ffu) << 8;
  bases = (bases >> 4 & 0x0f0f0f0fu) | (bases & 0x0f0f0f0fu) << 4;
  return (bases >> 2 & 0x33333333u) | (bases & 0x33333333u) << 2;
#endif
}

/// Thirty-two.
DG_FN u64 reversed_bases(u64 bases) {
  const u32 low = static_cast<u32>(bases), high = static_cast<u32>(bases >> 32);
  return static_cast<u64>(reversed_bases(low)) << 32 | reversed_bases(high);
}

DG_FN u8 letter_of(u32 base) { return static_cast<u8>(0x54474341u >> 8 * base); }

}  // namespace dg

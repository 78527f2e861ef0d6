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

DG_FN u8 letter_of(u32 base) { return static_cast<u8>(0x54474341u >> 8 * base); }

}  // namespace dg

/// A tile: the lanes that serve one operation together.
///
/// Every lane of the tile calls every collective, in converged code: no collective stands in a
/// branch that only some lanes of the tile take. Other tiles of the same warp may be anywhere. The
/// lockstep tile (host/lockstep.h, tests only) offers the same members with W host threads.
#pragma once

#include "core/wide_word.cuh"

namespace dg {

template <int Width>
struct Tile {
#if DG_GPU
  static constexpr u32 size = Width;
  static_assert(Width > 1 && Width <= 32 && (Width & (Width - 1)) == 0);

  DG_FN u32 lane() const { return threadIdx.x & (Width - 1); }

  /// Bit l is lane l's claim.
  DG_FN u32 ballot(bool claim) const { return (__ballot_sync(mask(), claim) & mask()) >> shift(); }
  DG_FN bool any(bool claim) const { return __any_sync(mask(), claim); }

  template <class Word>
  DG_FN Word shuffle(Word word, u32 source) const {
    return __shfl_sync(mask(), word, static_cast<int>(source), Width);
  }
  DG_FN u128 shuffle(u128 word, u32 source) const {
    return {shuffle(word.low, source), shuffle(word.high, source)};
  }

  /// The lanes whose `word` is this lane's.
  DG_FN u32 match(u32 word) const { return (__match_any_sync(mask(), word) & mask()) >> shift(); }

  /// As `match`, of the lowest bits: costs less where lanes bring many different words, more where
  /// few.
  template <u32 bits>
  DG_FN u32 match_low(u32 word) const {
    u32 peers = mask();
    DG_UNROLL
    for (u32 bit = 0; bit < bits; ++bit) {
      // Four instructions; what the compiler makes of the same in C++ takes seven.
      u32 alike;
      asm volatile(
          "{\n .reg .pred one;\n and.b32 %0, %1, %2;\n setp.ne.u32 one, %0, 0;\n"
          " vote.sync.ballot.b32 %0, one, %3;\n @!one not.b32 %0, %0;\n}"
          : "=r"(alike)
          : "r"(word), "r"(1u << bit), "r"(mask()));
      peers &= alike;
    }
    return peers >> shift();
  }

  /// What lanes wrote before is seen by all lanes of the tile after.
  DG_FN void sync() const { __syncwarp(mask()); }

 private:
  DG_FN u32 shift() const { return threadIdx.x & 31u & ~(Width - 1u); }
  DG_FN u32 mask() const { return (~0u >> (32 - Width)) << shift(); }
#endif
};

template <>
struct Tile<1> {
  static constexpr u32 size = 1;

  DG_FN u32 lane() const { return 0; }
  DG_FN u32 ballot(bool claim) const { return claim; }
  DG_FN bool any(bool claim) const { return claim; }
  template <class Word>
  DG_FN Word shuffle(Word word, u32) const {
    return word;
  }
  DG_FN u32 match(u32) const { return 1; }
  DG_FN void sync() const {}
};

/// The sum of what the lanes up to this one brought.
template <class Tile, class Word>
DG_FN Word inclusive_sum(Tile tile, Word term) {
  Word sum = term;
  DG_UNROLL
  for (u32 distance = 1; distance < Tile::size; distance *= 2) {
    const Word below = tile.shuffle(sum, (tile.lane() - distance) & (Tile::size - 1));
    if (tile.lane() >= distance) sum += below;
  }
  return sum;
}

}  // namespace dg

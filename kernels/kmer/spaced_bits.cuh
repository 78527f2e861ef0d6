/// The bits of minimizers that count, packed and spread again: a spaced seed leaves out every other base at the end.
#pragma once

#include "core/fields.cuh"
#include "core/platform.cuh"

namespace dg {

struct SpacedBits {
  u64 spaces;  // bases that are left out, up to 7

  DG_FIELDS(spaces)

  DG_FN u64 packed(u64 minimizer) const {
    u64 last = minimizer & ((u64{1} << 4 * spaces) - 1) & 0x3333333333333333ull;
    last = (last | last >> 2) & 0x0f0f0f0f0f0f0f0full;
    last = (last | last >> 4) & 0x00ff00ff00ff00ffull;
    last = (last | last >> 8) & 0x0000ffff0000ffffull;
    return minimizer >> 4 * spaces << 2 * spaces | last;
  }

  DG_FN u64 spread(u64 packed) const {
    u64 last = packed & ((u64{1} << 2 * spaces) - 1);
    last = (last | last << 8) & 0x00ff00ff00ff00ffull;
    last = (last | last << 4) & 0x0f0f0f0f0f0f0f0full;
    last = (last | last << 2) & 0x3333333333333333ull;
    return packed >> 2 * spaces << 4 * spaces | last;
  }
};

}  // namespace dg

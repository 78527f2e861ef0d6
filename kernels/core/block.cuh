/// A block: tiles that share memory and meet at barriers.
///
/// Every lane of the block calls every collective, in converged code. On the CPU a block is one
/// lane. The lockstep block (host/lockstep.h, tests only) has tiles of fewer lanes.
#pragma once

#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

template <u32 Threads>
struct Block {
#if DG_GPU
  using Lanes = Tile<32>;
  static constexpr u32 threads = Threads;
  static constexpr u32 tiles = Threads / 32;
  static_assert(Threads % 32 == 0);

  DG_FN u32 thread() const { return threadIdx.x; }
  DG_FN Lanes tile() const { return {}; }
  DG_FN u32 tile_index() const { return threadIdx.x / 32; }

  /// What lanes wrote before is seen by all lanes of the block after.
  DG_FN void sync() const { __syncthreads(); }

  /// Adds to a counter in the block's shared memory, to which other lanes add meanwhile.
  DG_FN void add(u32* counter, u32 term) const { atomicAdd(counter, term); }

  /// Stores a word of shared memory where other lanes store the same one meanwhile.
  DG_FN void store(u64* to, u64 word) const { *to = word; }
#endif
};

template <>
struct Block<1> {
  using Lanes = Tile<1>;
  static constexpr u32 threads = 1;
  static constexpr u32 tiles = 1;

  DG_FN u32 thread() const { return 0; }
  DG_FN Lanes tile() const { return {}; }
  DG_FN u32 tile_index() const { return 0; }
  DG_FN void sync() const {}
  DG_FN void add(u32* counter, u32 term) const { *counter += term; }
  DG_FN void store(u64* to, u64 word) const { *to = word; }
};

/// The sum of what the threads before this one brought. `scratch` is shared, of one word for each
/// tile; another barrier of the block stands between two calls with the same scratch.
template <class Block, class Word>
DG_FN Word exclusive_sum(Block block, Word* scratch, Word term) {
  const auto tile = block.tile();
  const u32 lane = tile.lane();
  Word sum = term;
  DG_UNROLL
  for (u32 distance = 1; distance < Block::Lanes::size; distance *= 2) {
    const Word below = tile.shuffle(sum, lane - distance);
    if (lane >= distance) sum += below;
  }
  if (lane == Block::Lanes::size - 1) scratch[block.tile_index()] = sum;
  block.sync();
  sum -= term;
  for (u32 tile_below = 0; tile_below < block.tile_index(); ++tile_below)
    sum += scratch[tile_below];
  return sum;
}

}  // namespace dg

/// The loop of every kernel: one tile for each row.
#pragma once

#include "core/atomic.cuh"
#include "core/block.cuh"
#include "core/platform.cuh"
#include "core/tile.cuh"
#include "grid/shared_memory.cuh"

namespace dg {

/// What one thread counts during a launch, added up by block before it goes to memory.
template <u32 counters>
struct Tally {
  i64 of[counters == 0 ? 1 : counters] = {};
};

/// Where the tallies go.
template <u32 counters>
struct Totals {
  u64* of[counters == 0 ? 1 : counters];
};

struct NoPrefetch {
  DG_FN void operator()(u64) const {}
};

#if DG_GPU

template <u32 counters>
DG_FN void add_to_totals(const Tally<counters>& tally, const Totals<counters>& totals) {
  __shared__ i64 by_warp[32];
  DG_UNROLL
  for (u32 i = 0; i < counters; ++i) {
    i64 sum = tally.of[i];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (u32 warp = 1; warp < blockDim.x / 32; ++warp) sum += by_warp[warp];
      if (sum != 0) atomic_add<Order::relaxed>(totals.of[i], static_cast<u64>(sum));
    }
    __syncthreads();
  }
}

/// Blocks are one-dimensional and of whole warps. Nobody returns early: the end is a barrier of the
/// block.
template <int Width, u32 counters, class Body, class Ahead>
DG_FN void for_each_tile(u64 rows, [[maybe_unused]] const Totals<counters>& totals,
                         const Body& body, const Ahead&) {
  Tally<counters> tally;
  const u64 tiles = static_cast<u64>(gridDim.x) * blockDim.x / Width;
  const u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (u64 row = thread / Width; row < rows; row += tiles) body(Tile<Width>{}, row, tally);
  if constexpr (counters > 0) add_to_totals(tally, totals);
}

#else

template <u32 counters>
void add_to_totals([[maybe_unused]] const Tally<counters>& tally,
                   [[maybe_unused]] const Totals<counters>& totals) {
  if constexpr (counters > 0)
    for (u32 i = 0; i < counters; ++i)
      if (tally.of[i] != 0) atomic_add<Order::relaxed>(totals.of[i], static_cast<u64>(tally.of[i]));
}

#ifdef DG_LOCKSTEP

template <int Width, u32 counters, class Body, class Ahead>
void for_each_tile(u64 rows, const Totals<counters>& totals, const Body& body, const Ahead&) {
  lockstep::for_each_tile<Width>(rows, [&](auto tile, u64 row) {
    Tally<counters> tally;
    body(tile, row, tally);
    add_to_totals(tally, totals);
  });
}

#else

/// Calls `run(context, first, last)` on the threads of the pool for pieces of [0, rows); returns
/// when all are done. `row_work` is the cost of a row in units of a lookup. Defined by
/// host/pool.cpp.
void parallel_for(u64 rows, u64 row_work, void (*run)(const void* context, u64 first, u64 last),
                  const void* context);

template <class Piece>
void for_each_piece(u64 rows, u64 row_work, const Piece& piece) {
  parallel_for(
      rows, row_work,
      [](const void* context, u64 first, u64 last) {
        (*static_cast<const Piece*>(context))(first, last);
      },
      &piece);
}

inline constexpr u64 kPrefetchRows = 24;

/// A tile has one lane on the CPU, whatever `Width` the instance is named after.
template <int Width, u32 counters, class Body, class Ahead>
void for_each_tile(u64 rows, const Totals<counters>& totals, const Body& body, const Ahead& ahead,
                   u64 row_work = 1) {
  auto piece = [&](u64 first, u64 last) {
    Tally<counters> tally;
    for (u64 row = first; row < last; ++row) {
      if (row + kPrefetchRows < last) ahead(row + kPrefetchRows);
      body(Tile<1>{}, row, tally);
    }
    add_to_totals(tally, totals);
  };
  for_each_piece(rows, row_work, piece);
}

#endif
#endif

template <int Width, class Body, class Ahead = NoPrefetch>
DG_FN void for_each_tile(u64 rows, const Body& body, const Ahead& ahead = {}) {
  for_each_tile<Width>(
      rows, Totals<0>{}, [&](auto tile, u64 row, Tally<0>&) { body(tile, row); }, ahead);
}

/// One tile for `Count` rows a lane: `body(tile, first)` is called by every lane with the first row of the
/// tile's group, and with fewer rows in the last one. On the CPU `Count` is 1.
template <int Width, u32 Count, class Body, class Ahead = NoPrefetch>
DG_FN void for_each_group(u64 rows, const Body& body, [[maybe_unused]] const Ahead& ahead = {}) {
#if DG_GPU || defined(DG_LOCKSTEP)
  constexpr u64 group_rows = Width * Count;
  for_each_tile<Width>((rows + group_rows - 1) / group_rows,
                       [&](auto tile, u64 group) { body(tile, group * group_rows); });
#else
  static_assert(Count == 1);
  for_each_tile<Width>(rows, body, ahead);
#endif
}

/// One tile for as many rows as it has lanes: `body(tile, row, asked)` is called by every lane with
/// its own row, also by the lanes past the end, which are not asked but take part in the
/// collectives.
template <int Width, class Body, class Ahead = NoPrefetch>
DG_FN void for_each_lane(u64 rows, const Body& body, const Ahead& ahead = {}) {
  for_each_group<Width, 1>(
      rows,
      [&](auto tile, u64 first) {
        const u64 row = first + tile.lane();
        body(tile, row, row < rows);
      },
      ahead);
}

/// The same with tallies; `ahead(row)` is called on CPUs some rows before a row's turn.
template <int Width, u32 counters, class Body, class Ahead>
DG_FN void for_each_lane(u64 rows, const Totals<counters>& totals, const Body& body,
                         const Ahead& ahead) {
#if DG_GPU || defined(DG_LOCKSTEP)
  for_each_tile<Width>((rows + Width - 1) / Width, totals,
                       [&](auto tile, u64 group, Tally<counters>& tally) {
                         const u64 row = group * Width + tile.lane();
                         body(tile, row, row < rows, tally);
                       },
                       ahead);
#else
  for_each_tile<Width>(
      rows, totals,
      [&](auto tile, u64 row, Tally<counters>& tally) { body(tile, row, true, tally); }, ahead);
#endif
}

/// Calls `serve(lane)` by the whole tile for each lane that has something to be done, one after
/// another: the ballot is the queue of work (SlabHash §IV-A).
template <class Tile, class Serve>
DG_FN void serve_lanes(Tile tile, bool asked, const Serve& serve) {
  for (u32 queue = tile.ballot(asked); queue != 0; queue &= queue - 1) serve(lowest_one(queue));
}

/// Where a segment of a batch ends.
template <class Args>
DG_FN u64 end_of_rows(const Args& args, u64 segment) {
  const u64 end = (segment + 1) * args.segment_rows;
  return end < args.rows ? end : args.rows;
}

/// One tile for each segment of a batch: few rows of `segment_rows` times the usual work.
template <int Width, u32 counters, class Body>
DG_FN void for_each_segment(u64 segments, [[maybe_unused]] u64 segment_rows,
                            const Totals<counters>& totals, const Body& body) {
#if DG_GPU || defined(DG_LOCKSTEP)
  for_each_tile<Width>(segments, totals, body, NoPrefetch{});
#else
  for_each_tile<Width>(segments, totals, body, NoPrefetch{}, segment_rows);
#endif
}

template <int Width, class Body>
DG_FN void for_each_segment(u64 segments, u64 segment_rows, const Body& body) {
  for_each_segment<Width>(segments, segment_rows, Totals<0>{},
                          [&](auto tile, u64 segment, Tally<0>&) { body(tile, segment); });
}

/// The rows [first, last) of a segment, as many at a time as the tile has lanes: `body(row, inside)` is
/// called by every lane, also by those past the end.
template <class Tile, class Body>
DG_FN void for_each_step(Tile tile, u64 first, u64 last, const Body& body) {
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 row = start + tile.lane();
    body(row, row < last);
  }
}

/// One block for each of `args.n` segments of a batch, with a `Shared<Block>` in shared memory, which
/// holds what the block's last segment left there.
template <class Args, u32 Threads, template <class> class Shared, class Body>
DG_FN void for_each_block(const Sharing<Args, Threads, Shared>& args, const Body& body) {
#if DG_GPU
  // Dynamic, since no architecture lets a block have more than 48 KiB otherwise.
  extern __shared__ __align__(16) u8 block_memory[];
  static_assert(alignof(Shared<Block<Threads>>) <= 16);
  auto& shared = *reinterpret_cast<Shared<Block<Threads>>*>(block_memory);
  for (u64 segment = blockIdx.x; segment < args.n; segment += gridDim.x)
    body(Block<Threads>{}, shared, segment);
#elif defined(DG_LOCKSTEP)
  lockstep::for_each_block<Threads, Shared>(args.n, body);
#else
  auto piece = [&](u64 first, u64 last) {
    Shared<Block<1>> shared;
    for (u64 segment = first; segment < last; ++segment) body(Block<1>{}, shared, segment);
  };
  for_each_piece(args.n, args.segment_rows, piece);
#endif
}

}  // namespace dg

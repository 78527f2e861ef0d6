/// What slab tables and their pools have beside the verbs.
#pragma once

#include "launch/methods/execute.cuh"
#include "launch/methods/flush.cuh"
#include "table/methods/slab.cuh"
#include "table/slab/lists.cuh"

namespace dg {

struct SlabAllocateArgs {
  SlabPool pool;
  u32* addresses;  // one for each row; kNoSlab where none was free
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(pool, addresses, rows, segment_rows, n)
};

struct SlabReleaseArgs {
  SlabPool pool;
  const u32* addresses;
  u64 n;

  DG_FIELDS(pool, addresses, n)
};

struct SlabChainArgs {
  SlabStorage table;
  u32* slabs;  // of each bucket's chain
  u64 n;       // buckets

  DG_FIELDS(table, slabs, n)
};

/// Takes a slab for each row; a tile keeps its resident block from row to row.
template <int W>
DG_KERNEL slab_allocate(SlabAllocateArgs args) {
  const SlabAlloc pool{args.pool};
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    ResidentBlock<decltype(tile)::size> resident;
    for_each_step(tile, segment * args.segment_rows, end_of_rows(args, segment),
                  [&](u64 row, bool inside) {
                    const u32 mine = pool.allocate_each(tile, inside, segment, resident);
                    if (inside) args.addresses[row] = mine;
                  });
  });
}

/// Gives slabs back that nobody has written to.
DG_KERNEL slab_release(SlabReleaseArgs args) {
  const SlabAlloc pool{args.pool};
  for_each_tile<1>(args.n, [&](auto, u64 row) { pool.release(args.addresses[row]); });
}

/// How long each bucket's chain is.
DG_KERNEL slab_chains(SlabChainArgs args) {
  const SlabAlloc pool{args.table.pool};
  for_each_tile<1>(args.n, [&](auto, u64 bucket) {
    const char* slab = static_cast<const char*>(args.table.slabs) + bucket * kSlabBytes;
    u32 slabs = 1;
    for (u32 next; (next = reinterpret_cast<const u32*>(slab)[31]) != kNoSlab; ++slabs)
      slab = pool.slab(next);
    args.slabs[bucket] = slabs;
  });
}

}  // namespace dg

/// Answers in the order of a partitioned batch, back to the places of its rows.
#pragma once

#include "batch/put_back.cuh"
#include "launch/for_each.cuh"
#include "launch/partition.cuh"

namespace dg {

struct PutBackArgs {
  Digit digit;        // of the pass that kept rows of a part in order
  const void* keys;   // as they were before
  const void* words;  // or null
  const u8* flags;    // or null
  void* words_to;
  u8* flags_to;
  const u64* places;  // parts x pieces, of the scatter
  u64 rows;
  u64 parts;
  u64 pieces;
  u64 step_rows;
  u64 segment_rows;
  u64 n;  // segments
};

template <class Key, class Word, u32 Threads>
DG_BLOCK_KERNEL(Threads)
put_back(Sharing<PutBackArgs, Threads, PartRanks> args) {
  const BackColumns<Word> columns{static_cast<const Word*>(args.words), args.flags,
                                  static_cast<Word*>(args.words_to), args.flags_to};
  for_each_block(args, [&](auto block, auto& ranks, u64 number) {
    const RowRange segment = segment_of({0, args.rows}, number, args.pieces, args.step_rows);
    for (u32 part = block.thread(); part < args.parts; part += block.threads)
      ranks.firsts[part] = args.places[number + part * args.pieces];
    block.sync();
    put_back_parts(block, ranks, args.digit, static_cast<const Key*>(args.keys), columns,
                   segment.first, segment.last);
    block.sync();
  });
}

}  // namespace dg

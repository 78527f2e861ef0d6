/// Batches dealt out to few parts, and answers brought back to the places of their rows.
#pragma once

#include "batch/multisplit.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"

namespace dg {

struct DealCountArgs {
  Digit digit;
  const void* keys;
  u8* parts_of;  // of each row
  u64* counts;   // parts x segments
  u64 rows;
  u64 parts;
  u64 segment_rows;  // whole steps
  u64 n;             // segments

  DG_FIELDS(digit, keys, parts_of, counts, rows, parts, segment_rows, n)
};

struct DealPlacesArgs {
  u64* places;  // parts x segments and one more: counts before
  u64* starts;  // parts and one more
  u64 parts;
  u64 segments;
  u64 segment_rows;
  u64 n;  // one block

  DG_FIELDS(places, starts, parts, segments, segment_rows, n)
};

struct DealMoveArgs {
  const void* words;
  void* words_to;
  const u8* parts_of;
  const u64* places;  // parts x segments
  u64 rows;
  u64 parts;
  u64 segments;
  u64 segment_rows;
  u64 n;  // blocks

  DG_FIELDS(words, words_to, parts_of, places, rows, parts, segments, segment_rows, n)
};

struct DealBackArgs {
  const void* words;  // or null
  const u8* flags;    // or null
  void* words_to;
  u8* flags_to;
  const u8* parts_of;
  const u64* places;  // parts x segments
  const u64* pads;    // or null; of each part how much further on its rows stand
  u64 rows;
  u64 parts;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(words, flags, words_to, flags_to, parts_of, places, pads, rows, parts, segment_rows, n)
};

template <class Key, int Width>
DG_KERNEL deal_count(DealCountArgs args) {
  for_each_segment<Width>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    count_dealt(tile, args.digit, static_cast<const Key*>(args.keys), args.parts_of, args.parts,
                segment * args.segment_rows, end_of_rows(args, segment), args.counts + segment,
                args.n);
  });
}

template <u32 Threads>
DG_BLOCK_KERNEL(Threads)
deal_places(Sharing<DealPlacesArgs, Threads, DealSums> args) {
  for_each_block(args, [&](auto block, auto& sums, u64) {
    place_dealt(block, sums, args.places, args.starts, args.parts, args.segments);
  });
}

template <class Word, u32 Threads>
DG_BLOCK_KERNEL(Threads)
deal_move(Sharing<DealMoveArgs, Threads, DealStagesOf<Word>::template In> args) {
  for_each_block(args, [&](auto block, auto& stages, u64 number) {
    const u64 segment = number * block.tiles + block.tile_index();
    if (segment >= args.segments) return;
    move_dealt(block, stages, static_cast<const Word*>(args.words),
               static_cast<Word*>(args.words_to), args.parts_of, args.parts,
               segment * args.segment_rows, end_of_rows(args, segment), args.places + segment,
               args.segments);
  });
}

template <class Word, int Width>
DG_KERNEL deal_back(DealBackArgs args) {
  const BackColumns<Word> columns{static_cast<const Word*>(args.words), args.flags,
                                  static_cast<Word*>(args.words_to), args.flags_to};
  for_each_segment<Width>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    bring_back(tile, columns, args.parts_of, args.parts, segment * args.segment_rows,
               end_of_rows(args, segment), args.places + segment, args.n, args.pads);
  });
}

}  // namespace dg

/// Batches dealt out to few parts, and answers brought back to the places of their rows.
#pragma once

#include "batch/deal.cuh"
#include "launch/for_each.cuh"

namespace dg {

struct DealArgs {
  Digit digit;
  const void* keys;
  const void* values;  // where `Value` is not void
  void* keys_to;
  void* values_to;
  u8* parts_of;   // each row's part, from the count
  u64* counters;  // parts x segments: rows from the count, places for what moves
  u64 rows;
  u64 parts;
  u64 segments;
  u64 segment_rows;  // whole steps
  u64 n;             // segments of the count, blocks of what moves
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
};

template <class Key, int Width>
DG_KERNEL deal_count(DealArgs args) {
  for_each_segment<Width>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    count_dealt(tile, args.digit, static_cast<const Key*>(args.keys), args.parts_of, args.parts,
                segment * args.segment_rows, end_of_rows(args, segment), args.counters + segment,
                args.segments);
  });
}

template <class Key, class Value, u32 Threads>
DG_BLOCK_KERNEL(Threads)
deal_move(Sharing<DealArgs, Threads, DealStagesOf<Key, typename StoredAs<Value>::Type>::template In>
              args) {
  using Word = typename StoredAs<Value>::Type;
  const DealColumns<Key, Word> columns{
      static_cast<const Key*>(args.keys), static_cast<const Word*>(args.values),
      static_cast<Key*>(args.keys_to), static_cast<Word*>(args.values_to)};
  for_each_block(args, [&](auto block, auto& stages, u64 number) {
    const u64 segment = number * block.tiles + block.tile_index();
    if (segment >= args.segments) return;
    move_dealt(block, stages, columns, args.parts_of, args.parts, segment * args.segment_rows,
               end_of_rows(args, segment), args.counters + segment, args.segments);
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

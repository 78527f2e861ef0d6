/// Answers in the order of a partitioned batch, back to the places of its rows. A row is a row of the
/// batch; tiles have one lane.
#pragma once

#include "launch/for_each.cuh"

namespace dg {

struct PutBackArgs {
  const i64* numbers;  // of the rows, each once
  const void* words;   // or null
  const u8* flags;     // or null
  void* words_to;
  u8* flags_to;
  u64 n;
};

template <class Word>
DG_KERNEL put_back(PutBackArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const i64 number = args.numbers[row];
    if (args.words)
      static_cast<Word*>(args.words_to)[number] = static_cast<const Word*>(args.words)[row];
    if (args.flags) args.flags_to[number] = args.flags[row];
  });
}

}  // namespace dg

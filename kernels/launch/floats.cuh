/// Floats as keys: equal ones get equal words. A row is a float; tiles have one lane.
#pragma once

#include "launch/for_each.cuh"

namespace dg {

/// Patterns of the floats' width, which is that of a word or, widened with zeros, less.
struct FloatWordsArgs {
  const void* floats;
  void* words;
  u64 n;
  u64 sign;  // the pattern of -0.0
  u64 infinity;
  u64 nan;
};

/// -0.0 becomes 0.0, and every NaN the same one.
template <class Word>
DG_KERNEL float_words(FloatWordsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const Word word = static_cast<const Word*>(args.floats)[row];
    const Word magnitude = word & static_cast<Word>(args.sign - 1);
    static_cast<Word*>(args.words)[row] = magnitude == 0              ? Word{0}
                                          : magnitude > args.infinity ? static_cast<Word>(args.nan)
                                                                      : word;
  });
}

}  // namespace dg

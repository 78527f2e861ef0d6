/// What became of a key, and what an insert does to the value of a key that is stored.
#pragma once

#include "core/platform.cuh"

namespace dg {

/// It found no slot, was there, was stored just now, or is on its way still.
enum class Outcome : u32 { refused, existed, created, later };

/// What an insert does where the key is stored already.
enum class OnExisting : u32 { keep, overwrite, sum, min, max, bit_or };

/// What the bits of a value mean to sums, minima and maxima.
enum class ValueKind : u32 { unsigned_integer, signed_integer, floating };

struct Change {
  OnExisting action;
  ValueKind kind;
  u32 spare_bits = 0;  // the highest bits of a word, which values of one or two bytes leave
};

/// As Python tells it: the kind in the lower half of a word, the spare bits in the upper one.
DG_FN Change change_of(u64 action, u64 kind) {
  return {static_cast<OnExisting>(action), static_cast<ValueKind>(kind & 0xffffffffull),
          static_cast<u32>(kind >> 32)};
}

/// What a row of a mixed batch does to its key.
enum class Op : u32 { find, insert, upsert, erase, erase_all };

/// What became of it.
template <class Value>
struct Executed {
  bool flag;     // the key was found, created or removed
  bool refused;  // it found no place
  Value value;   // of a key that was found
};

template <class Real, class Word>
DG_FN Real as_real(Word word) {
  static_assert(sizeof(Real) == sizeof(Word));
  Real real;
#if DG_GPU
  memcpy(&real, &word, sizeof real);
#else
  std::memcpy(&real, &word, sizeof real);
#endif
  return real;
}

/// A number whose order as an unsigned word is that of `word` by its kind. NaN is above all others,
/// so that a minimum needs its own care.
template <class Word>
DG_FN Word in_order_of(Word word, ValueKind kind) {
  constexpr Word top = Word{1} << (8 * sizeof(Word) - 1);
  if (kind == ValueKind::unsigned_integer) return word;
  if (kind == ValueKind::signed_integer) return word ^ top;
  return word & top ? static_cast<Word>(~word) : static_cast<Word>(word | top);
}

template <class Word>
DG_FN bool is_nan(Word word) {
  if constexpr (sizeof(Word) == 4)
    return (word & 0x7fffffffu) > 0x7f800000u;
  else
    return (word & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
}

/// `changed` of values as wide as their words.
template <class Word>
DG_FN Word changed_word(Word held, Word term, Change change) {
  switch (change.action) {
    case OnExisting::keep:
      return held;
    case OnExisting::overwrite:
      return term;
    case OnExisting::bit_or:
      return held | term;
    case OnExisting::sum: {
      if (change.kind != ValueKind::floating) return held + term;
      if constexpr (sizeof(Word) == 4)
        return as_real<Word>(as_real<float>(held) + as_real<float>(term));
      else
        return as_real<Word>(as_real<double>(held) + as_real<double>(term));
    }
    default: {
      if (change.kind == ValueKind::floating) {
        if (is_nan(held)) return held;
        if (is_nan(term)) return term;
      }
      const bool below = in_order_of(term, change.kind) < in_order_of(held, change.kind);
      return below == (change.action == OnExisting::min) ? term : held;
    }
  }
}

/// The value of a key that holds `held` and is brought `term`. Integers wrap; NaN wins, as in NumPy.
template <class Word>
DG_FN Word changed(Word held, Word term, Change change) {
  const u32 spare = change.spare_bits;
  if constexpr (sizeof(Word) == 8) {
    // A float of four bytes is one in a longer word, too.
    if (spare == 32 && change.kind == ValueKind::floating)
      return changed_word(static_cast<u32>(held), static_cast<u32>(term), change);
  }
  return static_cast<Word>(
      changed_word(static_cast<Word>(held << spare), static_cast<Word>(term << spare), change) >>
      spare);
}

}  // namespace dg

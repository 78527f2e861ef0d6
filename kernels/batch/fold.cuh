/// What a row brings to the totals of its group, and how totals change: each column by its own fold,
/// by one lane for all lanes whose rows fall into the group.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

/// How a column's values are read. Named in dgpuhash/backend/constants.py, as the next two.
enum class Reading : u64 { i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, date };

/// What is reduced: one for each value, the value as an integer or as a double, its rank as a word
/// that sorts like it, its row, whether it is not zero, or the square of an integer modulo 2^64. NaN
/// and NaT are left out.
enum class Term : u64 { one, integer, real, rank, row, truth, square };

/// A compensated sum is two words: the sum, and what it is too large by. In a record of totals the next
/// column stands for the second word, whose fold is `excess`. Tiles of one lane have it where no other
/// tile adds beside. A pair is the same with all that roundings took off the sum, for tiles of one lane.
enum class Fold : u64 { sum, real_sum, least, greatest, compensated, excess, pair };

/// In device memory.
struct ReduceColumn {
  const void* values;  // or null: every row counts, and only its number is looked at
  u64* totals;         // copies x groups
  Reading reading;
  Term term;
  Fold fold;

  DG_FIELDS(values, totals, reading, term, fold)
};

DG_FN u64 bits_of(double real) {
#if DG_GPU
  return static_cast<u64>(__double_as_longlong(real));
#else
  u64 bits;
  std::memcpy(&bits, &real, sizeof bits);
  return bits;
#endif
}

DG_FN double real_of(u64 bits) {
#if DG_GPU
  return __longlong_as_double(static_cast<i64>(bits));
#else
  double real;
  std::memcpy(&real, &bits, sizeof real);
  return real;
#endif
}

/// Where nothing was read: changes no total. That of the reals is 0.0, and of compensated ones a NaN.
DG_FN u64 neutral(Fold fold) {
  return fold == Fold::least || fold == Fold::compensated ? ~0ull : 0;
}

DG_FN u64 folded(Fold fold, u64 left, u64 right) {
  if (fold == Fold::sum) return left + right;
  if (fold == Fold::real_sum) return bits_of(real_of(left) + real_of(right));
  return (left < right) == (fold == Fold::least) ? left : right;
}

/// Bytes of a value.
DG_FN u32 nbytes_of(Reading reading) {
  switch (reading) {
    case Reading::i8:
    case Reading::u8:
      return 1;
    case Reading::i16:
    case Reading::u16:
      return 2;
    case Reading::i32:
    case Reading::u32:
    case Reading::f32:
      return 4;
    default:
      return 8;
  }
}

/// An integer, signed or not, in the order of unsigned words.
template <class Integer>
DG_FN u64 integer_term(const void* values, u64 row, Term term) {
  constexpr u64 sign = static_cast<Integer>(-1) < Integer{0} ? 1ull << 63 : 0;
  const Integer value = static_cast<const Integer*>(values)[row];
  if (term == Term::truth) return value != 0;
  if (term == Term::real) return bits_of(static_cast<double>(value));
  if (term == Term::square) return static_cast<u64>(value) * static_cast<u64>(value);
  return static_cast<u64>(value) ^ (term == Term::rank ? sign : 0);
}

/// What row `row` adds to a column, whose values have it at `place`.
DG_FN u64 term_of(const ReduceColumn& column, u64 place, u64 row) {
  constexpr u64 sign = 1ull << 63;
  const u64 nothing = neutral(column.fold);
  u64 word = 1;
  if (column.values) {
    const void* values = column.values;
    const Term term = column.term;
    switch (column.reading) {
      case Reading::i8:
        word = integer_term<signed char>(values, place, term);
        break;
      case Reading::i16:
        word = integer_term<short>(values, place, term);
        break;
      case Reading::i32:
        word = integer_term<int>(values, place, term);
        break;
      case Reading::i64:
        word = integer_term<i64>(values, place, term);
        break;
      case Reading::u8:
        word = integer_term<u8>(values, place, term);
        break;
      case Reading::u16:
        word = integer_term<unsigned short>(values, place, term);
        break;
      case Reading::u32:
        word = integer_term<u32>(values, place, term);
        break;
      case Reading::u64:
        word = integer_term<dg::u64>(values, place, term);
        break;
      case Reading::date: {
        const i64 date = static_cast<const i64*>(values)[place];
        word = static_cast<dg::u64>(date) ^ sign;
        if (word == 0) return nothing;  // NaT
        // NaT has the lowest rank: from here on the least total that nothing was added to is NaT's.
        if (column.fold == Fold::least) --word;
        break;
      }
      default: {
        const double real = column.reading == Reading::f32
                                ? static_cast<double>(static_cast<const float*>(values)[place])
                                : static_cast<const double*>(values)[place];
        if (real != real) return nothing;
        word = bits_of(real);
        if (term == Term::rank) word = word & sign ? ~word : word | sign;
        if (term == Term::truth) word = real != 0;
      }
    }
  }
  if (column.term == Term::one) return 1;
  // The last row is the greatest; 0 is left for no row.
  if (column.term == Term::row) return column.fold == Fold::greatest ? row + 1 : row;
  return word;
}

/// The lowest lane of each set of peers gets what all of them brought: pairs first, then pairs of
/// pairs. `above` are the peers above this lane, `rank` the number of those below.
template <class Tile>
DG_FN u64 combined(Tile tile, Fold fold, u64 word, u32 above, u32 rank) {
  while (tile.any(above != 0)) {
    const u64 next = tile.shuffle(word, above ? lowest_one(above) : tile.lane());
    if (above) word = folded(fold, word, next);
    above &= ~tile.ballot(rank & 1);
    rank >>= 1;
  }
  return word;
}

DG_FN void add_to_total(u64* total, Fold fold, u64 word, bool alone) {
  if (alone) {
    *total = folded(fold, *total, word);
  } else if (fold == Fold::sum) {
    atomic_add<Order::relaxed>(total, word);
  } else if (fold == Fold::real_sum) {
    atomic_add<Order::relaxed>(reinterpret_cast<double*>(total), real_of(word));
  } else if (fold == Fold::least) {
    if (word < atomic_load_stale(total)) atomic_min<Order::relaxed>(total, word);
  } else {
    if (word > atomic_load_stale(total)) atomic_max<Order::relaxed>(total, word);
  }
}

/// Adds to a sum, and to what it is too large by (Kahan 1965), as pandas does: bit by bit.
///
/// What an infinite sum is too large by is no number, and would make one of the next.
DG_FN void add_compensated(double* total, double real) {
  if (real != real) return;
  const double wanted = real - total[1];
  const double sum = total[0] + wanted;
  const double excess = sum - total[0] - wanted;
  total[0] = sum;
  total[1] = excess - excess == 0 ? excess : 0;
}

/// A sum, and what it is too large by.
struct Compensated {
  double sum;
  double excess;
};

/// What the sum of both is too large by (Knuth 1969).
DG_FN double excess_of(double left, double right) {
  const double sum = left + right, rest = sum - left;
  return ((sum - rest) - left) + (rest - right);
}

/// As `combined`, for compensated sums; a NaN adds nothing.
template <class Tile>
DG_FN Compensated combined_sum(Tile tile, u64 word, u32 above, u32 rank) {
  const double real = real_of(word);
  Compensated own{real != real ? 0.0 : real, 0.0};
  while (tile.any(above != 0)) {
    const u32 from = above ? lowest_one(above) : tile.lane();
    const double sum = real_of(tile.shuffle(bits_of(own.sum), from));
    const double excess = real_of(tile.shuffle(bits_of(own.excess), from));
    if (above) {
      own.excess += excess + excess_of(own.sum, sum);
      own.sum += sum;
    }
    above &= ~tile.ballot(rank & 1);
    rank >>= 1;
  }
  return own;
}

/// The sum that stood there tells by what the new one was rounded, in whatever order lanes come.
///
/// What an infinite sum is too large by is no number.
DG_FN void add_to_sum(double* total, const Compensated& added, bool alone) {
  double before;
  if (alone) {
    before = total[0];
    total[0] = before + added.sum;
  } else {
    before = atomic_fetch_add<Order::relaxed>(total, added.sum);
  }
  const double excess = added.excess + excess_of(before, added.sum);
  if (excess == 0 || excess - excess != 0) return;
  if (alone)
    total[1] += excess;
  else
    atomic_add<Order::relaxed>(total + 1, excess);
}

/// The same of one number and for one lane, whose totals no other changes. Without a branch: whether a
/// sum is rounded, no processor foresees. 1,250,000 rows of 10^5 groups take 6 instead of 15 ms.
DG_FN void add_to_own_sum(double* total, double real) {
  const double excess = excess_of(total[0], real);
  total[0] += real;
  total[1] += excess - excess == 0 ? excess : 0.0;
}

/// Adds to two totals that stand side by side, where there are any. Two lanes serve a row, so that the
/// L2 cache gets both in one request: on an H200 2^27 rows of 2^16 groups take 3.9 instead of 5.0 ms.
template <class Tile>
DG_FN void add_to_pair(Tile tile, u64* totals, Fold first_fold, u64 first, Fold second_fold,
                       u64 second) {
  if constexpr (Tile::size == 1) {
    if (totals == nullptr) return;
    add_to_total(totals, first_fold, first, false);
    add_to_total(totals + 1, second_fold, second, false);
  } else {
    const bool odd = tile.lane() & 1;
    const u64 theirs = tile.shuffle(reinterpret_cast<u64>(totals), tile.lane() ^ 1);
    const u64 given = tile.shuffle(odd ? first : second, tile.lane() ^ 1);
    u64* const others = reinterpret_cast<u64*>(theirs);
    const Fold fold = odd ? second_fold : first_fold;
    u64* const even_row = odd ? others : totals;
    if (even_row) add_to_total(even_row + odd, fold, odd ? given : first, false);
    u64* const odd_row = odd ? totals : others;
    if (odd_row) add_to_total(odd_row + odd, fold, odd ? second : given, false);
  }
}

}  // namespace dg

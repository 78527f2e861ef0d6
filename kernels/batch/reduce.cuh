/// Reductions by group over a segment of rows, any number of columns in one pass.
///
/// Lanes whose rows fall into one group combine what they read by shuffles, and one of them updates
/// the group's total: many rows of one group do not queue up at its address. The order in which
/// they combine is that of the rows, so totals that one tile owns come out the same in every run.
#pragma once

#include "core/atomic.cuh"
#include "core/fields.cuh"
#include "core/platform.cuh"
#include "core/tile.cuh"

namespace dg {

/// How a column's values are read. Named in dgpuhash/backend/constants.py, as the next two.
enum class Reading : u64 { i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, date };

/// What is reduced: one for each value, the value as an integer or as a double, its rank as a word
/// that sorts like it, its row, or whether it is not zero. NaN and NaT are left out.
enum class Term : u64 { one, integer, real, rank, row, truth };

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

/// What every tile of a launch knows.
struct ReduceBatch {
  const i64* codes;
  const i64* order;  // or null; the rows by region of groups
  const ReduceColumn* columns;
  u64 column_count;
  u64 alone;  // 1: no other tile updates the same totals
  u64 wide;   // 1: codes take more than 32 bits

  DG_FIELDS(codes, order, columns, column_count, alone, wide)
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

/// An integer, signed or not, in the order of unsigned words.
template <class Integer>
DG_FN u64 integer_term(const void* values, u64 row, Term term) {
  constexpr u64 sign = static_cast<Integer>(-1) < Integer{0} ? 1ull << 63 : 0;
  const Integer value = static_cast<const Integer*>(values)[row];
  if (term == Term::truth) return value != 0;
  if (term == Term::real) return bits_of(static_cast<double>(value));
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

/// Adds each lane's row to its key's totals: lanes of one key combine, and the lowest of them, which
/// has the first of their rows, asks `place(key, row)` where they are; null for nowhere. Lanes that
/// are not asked take part. Compensated sums begin at columns of even numbers.
template <class Key, class Tile, class Place>
DG_FN void add_rows(Tile tile, const ReduceColumn* columns, u64 column_count, Key key, u64 index,
                    u64 row, bool asked, const Place& place) {
  u32 peers = tile.match(static_cast<u32>(key));
  if constexpr (sizeof(Key) == 8) peers &= tile.match(static_cast<u32>(key >> 32));
  peers &= tile.ballot(asked);
  const u32 below = peers & ones_below(tile.lane());
  const u32 above = asked ? peers & ~below & ~(1u << tile.lane()) : 0;
  const auto read = [&](u64 i) {
    return asked ? term_of(columns[i], index, row) : neutral(columns[i].fold);
  };
  const auto word_of = [&](u64 i) {
    return combined(tile, columns[i].fold, read(i), above, count_ones(below));
  };
  const auto is_pair = [&](u64 i) { return columns[i].fold == Fold::compensated; };
  // Read before the key is looked up, so that one wait covers both.
  u64 word = is_pair(0) ? read(0) : word_of(0);
  u64* const totals = asked && below == 0 ? place(key, row) : nullptr;
  // Lanes that end their walks one by one would go on one by one.
  tile.sync();
  for (u64 i = 0; i < column_count; i += 2) {
    if (is_pair(i)) {
      if (i > 0) word = read(i);
      const Compensated added = combined_sum(tile, word, above, count_ones(below));
      if (totals) add_to_sum(reinterpret_cast<double*>(totals + i), added, false);
      continue;
    }
    if (i > 0) word = word_of(i);
    if (i + 1 < column_count) {
      add_to_pair(tile, totals ? totals + i : nullptr, columns[i].fold, word, columns[i + 1].fold,
                  word_of(i + 1));
    } else if (totals) {
      add_to_total(totals + i, columns[i].fold, word, false);
    }
  }
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

/// Asks for what is read of a row.
DG_FN void ask_for_row(const ReduceBatch& batch, u64 row) {
  prefetch(batch.codes + row);
  for (u64 i = 0; i < batch.column_count; ++i) {
    const ReduceColumn& column = batch.columns[i];
    if (column.values)
      prefetch(static_cast<const char*>(column.values) + row * nbytes_of(column.reading));
  }
}

/// Adds what `word_at(row)` is of rows [first, last), in the order where there is one, by
/// `add(code, word)`.
template <class WordAt, class Add>
DG_FN void add_each(const ReduceBatch& batch, const ReduceColumn& column, u64 first, u64 last,
                    const WordAt& word_at, const Add& add) {
  if (batch.order == nullptr) {
    for (u64 row = first; row < last; ++row) add(static_cast<u64>(batch.codes[row]), word_at(row));
    return;
  }
  constexpr u64 ahead = 24;
  for (u64 index = first; index < last; ++index) {
    if (index + ahead < last) {
      const u64 next = static_cast<u64>(batch.order[index + ahead]);
      prefetch(batch.codes + next);
      prefetch(static_cast<const u64*>(column.values) + next);
    }
    const u64 row = static_cast<u64>(batch.order[index]);
    add(static_cast<u64>(batch.codes[row]), word_at(row));
  }
}

template <class WordAt>
DG_FN void add_bounds(const ReduceBatch& batch, const ReduceColumn& column, u64 first, u64 last,
                      u64 first_total, bool least, const WordAt& word_at) {
  u64* const bounds = column.totals + first_total;
  if (least) {
    add_each(batch, column, first, last, word_at, [&](u64 code, u64 word) {
      if (word < bounds[code]) bounds[code] = word;
    });
  } else {
    add_each(batch, column, first, last, word_at, [&](u64 code, u64 word) {
      if (word > bounds[code]) bounds[code] = word;
    });
  }
}

/// Adds a column whose kind is asked once, and not for each row: 64-bit numbers whose totals no other
/// tile changes. False for others.
///
/// On two CPUs 10^7 rows of 100 groups take 7 ms in sum instead of 34, compensated 13 instead of 37.
DG_FN bool reduce_alone(const ReduceBatch& batch, const ReduceColumn& column, u64 first, u64 last,
                        u64 first_total) {
  if (!batch.alone || !column.values) return false;
  const bool real = column.reading == Reading::f64;
  if (column.fold == Fold::compensated && real && column.term == Term::real) {
    const double* const values = static_cast<const double*>(column.values);
    double* const sums = reinterpret_cast<double*>(column.totals) + 2 * first_total;
    add_each(
        batch, column, first, last, [&](u64 row) { return values[row]; },
        [&](u64 code, double value) { add_compensated(sums + 2 * code, value); });
    return true;
  }
  if (column.fold == Fold::pair && real && column.term == Term::real) {
    const double* const values = static_cast<const double*>(column.values);
    double* const sums = reinterpret_cast<double*>(column.totals) + 2 * first_total;
    add_each(
        batch, column, first, last, [&](u64 row) { return values[row]; },
        [&](u64 code, double value) {
          if (value == value) add_to_sum(sums + 2 * code, Compensated{value, 0.0}, true);
        });
    return true;
  }
  const bool whole = column.reading == Reading::i64 || column.reading == Reading::u64;
  if (column.fold == Fold::sum && whole && column.term == Term::integer) {
    const u64* const values = static_cast<const u64*>(column.values);
    u64* const sums = column.totals + first_total;
    add_each(
        batch, column, first, last, [&](u64 row) { return values[row]; },
        [&](u64 code, u64 value) { sums[code] += value; });
    return true;
  }
  const bool least = column.fold == Fold::least;
  if (column.term != Term::rank || !(least || column.fold == Fold::greatest)) return false;
  if (real) {
    add_bounds(batch, column, first, last, first_total, least, [&](u64 row) {
      return term_of(ReduceColumn{column.values, nullptr, Reading::f64, Term::rank, column.fold},
                     row, row);
    });
  } else if (column.reading == Reading::i64) {
    add_bounds(batch, column, first, last, first_total, least,
               [&](u64 row) { return integer_term<i64>(column.values, row, Term::rank); });
  } else {
    return false;
  }
  return true;
}

/// Adds rows [first, last), of the order where there is one, to the totals that begin at
/// `first_total`.
template <class Tile>
DG_FN void reduce_segment(Tile tile, const ReduceBatch& batch, u64 first, u64 last,
                          u64 first_total) {
  if constexpr (Tile::size == 1) {
    if (batch.column_count == 1 && reduce_alone(batch, batch.columns[0], first, last, first_total))
      return;
  }
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 index = start + tile.lane();
    const bool inside = index < last;
    if constexpr (Tile::size == 1) {
      // The lanes of wider tiles wait for their rows at once.
      constexpr u64 ahead = 24;
      if (batch.order && index + ahead < last)
        ask_for_row(batch, static_cast<u64>(batch.order[index + ahead]));
    }
    u64 row = 0, code = ~0ull;
    if (inside) {
      row = batch.order ? static_cast<u64>(batch.order[index]) : index;
      code = static_cast<u64>(batch.codes[row]);
    }
    // No code is ~0, so lanes beyond the end match each other only.
    u32 peers = tile.match(static_cast<u32>(code));
    if (batch.wide) peers &= tile.match(static_cast<u32>(code >> 32));
    const u32 below = peers & ones_below(tile.lane());
    const u32 above = peers & ~below & ~(1u << tile.lane());
    for (u64 i = 0; i < batch.column_count; ++i) {
      const ReduceColumn column = batch.columns[i];
      if constexpr (Tile::size == 1) {
        if (column.fold == Fold::compensated) {
          double* const sums = reinterpret_cast<double*>(column.totals);
          if (inside)
            add_compensated(sums + 2 * (first_total + code), real_of(term_of(column, row, row)));
          continue;
        }
      } else if (column.fold == Fold::compensated) {
        double* const sums = reinterpret_cast<double*>(column.totals);
        const u64 word = inside ? term_of(column, row, row) : neutral(column.fold);
        const Compensated added = combined_sum(tile, word, above, count_ones(below));
        if (inside && below == 0)
          add_to_sum(sums + 2 * (first_total + code), added, batch.alone != 0);
        continue;
      }
      u64 word = inside ? term_of(column, row, row) : neutral(column.fold);
      word = combined(tile, column.fold, word, above, count_ones(below));
      if (inside && below == 0)
        add_to_total(column.totals + first_total + code, column.fold, word, batch.alone != 0);
    }
    // Another lane may update these totals in the next step.
    tile.sync();
  }
}

}  // namespace dg

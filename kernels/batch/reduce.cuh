/// Reductions by group over a segment of rows, any number of columns in one pass.
///
/// Lanes whose rows fall into one group combine what they read by shuffles, and one of them updates
/// the group's total: many rows of one group do not queue up at its address. The order in which
/// they combine is that of the rows, so totals that one tile owns come out the same in every run.
#pragma once

#include "batch/fold.cuh"

namespace dg {

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
          if (value == value) add_to_own_sum(sums + 2 * code, value);
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

/// Row numbers of the pairs of a join.
#pragma once

#include "batch/join.cuh"
#include "batch/select.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"

namespace dg {

struct JoinPairsArgs {
  JoinSides sides;
  i64* left;
  i64* right;
  u64 pairs;
  u64 segment_pairs;
  u64 n;  // segments

  DG_FIELDS(sides, left, right, pairs, segment_pairs, n)
};

struct JoinSizesArgs {
  const i64* keys;    // of the left rows: numbers, -1 for a key that the right side has not
  const i64* starts;  // of each key: where its right rows begin
  const i64* ends;    // and end
  i64* sizes;         // 0, then the pairs of each left row
  u64 alone;          // pairs of a row whose key the right side has not
  u64 n;              // left rows and one more

  DG_FIELDS(keys, starts, ends, sizes, alone, n)
};

struct JoinBoundsArgs {
  const i64* codes;  // of each row: its key's number, -1 for none
  const i64* order;  // rows by code, those without one last
  i64* starts;       // of each key, 0 before: where its rows begin in the order
  i64* ends;         // and end
  u64 n;

  DG_FIELDS(codes, order, starts, ends, n)
};

struct JoinSelectArgs {
  const i64* partner;  // of each left row, -1 for none
  const i64* ends;     // of each segment: rows with a partner in it and before
  i64* left;
  i64* right;  // or null
  u64 alone;   // 1: rows without a partner are chosen
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(partner, ends, left, right, alone, rows, segment_rows, n)
};

struct FoundCountArgs {
  const u8* found;  // 1 or 0, aligned to eight rows
  u64* counts;      // of each segment
  u64 rows;
  u64 segment_rows;  // a multiple of eight
  u64 n;             // segments

  DG_FIELDS(found, counts, rows, segment_rows, n)
};

struct FoundSelectArgs {
  const u8* found;
  const void* words;  // of each row
  const i64* ends;    // of each segment: rows found in it and before
  i64* rows_to;
  void* words_to;  // or null
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(found, words, ends, rows_to, words_to, rows, segment_rows, n)
};

struct AllRowsArgs {
  i64* rows;
  u64 n;

  DG_FIELDS(rows, n)
};

struct TakeArgs {
  const void* words;
  const void* rows;  // numbers of words
  void* to;
  u64 count;  // of rows
  u64 n;      // a share of the rows, rounded up

  DG_FIELDS(words, rows, to, count, n)
};

DG_KERNEL all_rows(AllRowsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) { args.rows[row] = static_cast<i64>(row); });
}

/// Words by their numbers, for each row of a share and for those as far on in the other shares, so that several
/// loads are on their way at once.
template <class Word, class Row>
DG_KERNEL take_words(TakeArgs args) {
  constexpr u32 kShares = 4;
  for_each_tile<1>(args.n, [&](auto, u64 first) {
    Word found[kShares] = {};
    DG_UNROLL
    for (u32 i = 0; i < kShares; ++i) {
      const u64 row = first + i * args.n;
      if (row < args.count)
        found[i] = static_cast<const Word*>(args.words)[static_cast<const Row*>(args.rows)[row]];
    }
    DG_UNROLL
    for (u32 i = 0; i < kShares; ++i) {
      const u64 row = first + i * args.n;
      if (row < args.count) static_cast<Word*>(args.to)[row] = found[i];
    }
  });
}

template <int W>
DG_KERNEL join_select(JoinSelectArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows;
    const u64 before = segment == 0 ? 0 : static_cast<u64>(args.ends[segment - 1]);
    select_rows(
        tile, first, end_of_rows(args, segment), args.alone ? first - before : before,
        [&](u64 row) { return (args.partner[row] < 0) == (args.alone != 0); },
        [&](u64 row, u64 place) {
          args.left[place] = static_cast<i64>(row);
          if (args.right) args.right[place] = args.partner[row];
        });
  });
}

template <int W>
DG_KERNEL found_count(FoundCountArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 last = end_of_rows(args, segment);
    u64 count = 0;
    DG_ROLL
    for (u64 row = segment * args.segment_rows + 8 * tile.lane(); row < last;
         row += 8 * tile.size) {
      if (row + 8 <= last) {
        count += count_ones(*reinterpret_cast<const u64*>(args.found + row));
      } else {
        DG_ROLL
        for (u64 each = row; each < last; ++each) count += args.found[each];
      }
    }
    count = inclusive_sum(tile, count);
    if (tile.lane() == tile.size - 1) args.counts[segment] = count;
  });
}

template <class Word, int W>
DG_KERNEL found_select(FoundSelectArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    select_rows(
        tile, segment * args.segment_rows, end_of_rows(args, segment),
        segment == 0 ? 0 : static_cast<u64>(args.ends[segment - 1]),
        [&](u64 row) { return args.found[row] != 0; },
        [&](u64 row, u64 place) {
          args.rows_to[place] = static_cast<i64>(row);
          if (args.words_to)
            static_cast<Word*>(args.words_to)[place] = static_cast<const Word*>(args.words)[row];
        });
  });
}

DG_KERNEL join_bounds(JoinBoundsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 place) {
    const i64 code = args.codes[args.order[place]];
    const i64 before = place == 0 ? -1 : args.codes[args.order[place - 1]];
    const i64 here = static_cast<i64>(place);
    if (code != before) {
      if (code >= 0) args.starts[code] = here;
      if (before >= 0) args.ends[before] = here;
    }
    if (code >= 0 && place + 1 == args.n) args.ends[code] = here + 1;
  });
}

DG_KERNEL join_sizes(JoinSizesArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 place) {
    const i64 key = place == 0 ? -1 : args.keys[place - 1];
    args.sizes[place] = key >= 0     ? args.ends[key] - args.starts[key]
                        : place == 0 ? 0
                                     : static_cast<i64>(args.alone);
  });
}

template <int W>
DG_KERNEL join_pairs(JoinPairsArgs args) {
  for_each_segment<W>(args.n, args.segment_pairs, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_pairs;
    const u64 last =
        first + args.segment_pairs < args.pairs ? first + args.segment_pairs : args.pairs;
    write_pairs(tile, args.sides, first, last, args.left, args.right);
  });
}

}  // namespace dg

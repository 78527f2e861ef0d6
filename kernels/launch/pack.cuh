/// Columns of integers packed into one number: the range of each column, and the place of each row's
/// values among all combinations.
#pragma once

#include "batch/fold.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"

namespace dg {

/// Most columns of a key; frames/keys/ranges.py.
inline constexpr u32 kKeyColumns = 8;

/// The columns of keys and their ranges, by value: a launch needs no copy of them in device memory.
struct KeyColumns {
  const void* values[kKeyColumns];
  const u8* nulls[kKeyColumns];  // or null where no value is null
  Reading readings[kKeyColumns];
  u64 leasts[kKeyColumns];
  u64 counts[kKeyColumns];   // ranks from the least one on
  u64 radixes[kKeyColumns];  // one more than the counts where nulls have a place, too
  u64 count;                 // columns

  DG_FIELDS(values, nulls, readings, leasts, counts, radixes, count)

  /// Calls `visit` with a column's values in their own type, which is asked once for many rows.
  template <class Visit>
  DG_FN void with_values(u32 column, const Visit& visit) const {
    const void* of = values[column];
    switch (readings[column]) {
      case Reading::i8:
        return visit(static_cast<const signed char*>(of));
      case Reading::i16:
        return visit(static_cast<const short*>(of));
      case Reading::i32:
        return visit(static_cast<const int*>(of));
      case Reading::i64:
        return visit(static_cast<const i64*>(of));
      case Reading::u8:
        return visit(static_cast<const u8*>(of));
      case Reading::u16:
        return visit(static_cast<const unsigned short*>(of));
      case Reading::u32:
        return visit(static_cast<const u32*>(of));
      default:
        return visit(static_cast<const u64*>(of));
    }
  }
};

/// A word that sorts like the integer.
template <class Integer>
DG_FN u64 rank_of(Integer value) {
  constexpr u64 sign = static_cast<Integer>(-1) < Integer{0} ? 1ull << 63 : 0;
  return static_cast<u64>(value) ^ sign;
}

struct KeyRangesArgs {
  KeyColumns columns;  // without ranges
  u64* ends;  // two of each column, 0 at first: the complement of the least rank, and the greatest
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(columns, ends, rows, segment_rows, n)
};

struct PackKeysArgs {
  KeyColumns columns;
  void* codes;
  u64 n;

  DG_FIELDS(columns, codes, n)
};

template <int W>
DG_KERNEL key_ranges(KeyRangesArgs args) {
  const KeyColumns& columns = args.columns;
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows, last = end_of_rows(args, segment);
    for (u32 i = 0; i < columns.count; ++i) {
      const u8* nulls = columns.nulls[i];
      u64 below = 0, most = 0;
      columns.with_values(i, [&](const auto* values) {
        for (u64 row = first + tile.lane(); row < last; row += tile.size) {
          if (nulls && nulls[row]) continue;
          const u64 rank = rank_of(values[row]);
          below = folded(Fold::greatest, below, ~rank);
          most = folded(Fold::greatest, most, rank);
        }
      });
      for (u32 distance = 1; distance < tile.size; distance *= 2) {
        below = folded(Fold::greatest, below, tile.shuffle(below, tile.lane() ^ distance));
        most = folded(Fold::greatest, most, tile.shuffle(most, tile.lane() ^ distance));
      }
      if (tile.lane() == 0) {
        add_to_total(args.ends + 2 * i, Fold::greatest, below, false);
        add_to_total(args.ends + 2 * i + 1, Fold::greatest, most, false);
      }
    }
  });
}

/// Rows that a lane packs column by column.
inline constexpr u64 kPackRows = DG_GPU ? 1 : 64;

/// Rows with a value outside of its range have the greatest word.
template <class Word>
DG_KERNEL pack_keys(PackKeysArgs args) {
  const KeyColumns& columns = args.columns;
  for_each_segment<1>((args.n + kPackRows - 1) / kPackRows, kPackRows, [&](auto, u64 segment) {
    const u64 first = segment * kPackRows, left = args.n - first;
    // There is one at least, so a GPU has no loop here.
    const u64 rows = kPackRows == 1 || left > kPackRows ? kPackRows : left;
    u64 codes[kPackRows] = {};
    bool inside[kPackRows];
    for (u64 row = 0; row < rows; ++row) inside[row] = true;
    for (u32 i = 0; i < columns.count; ++i) {
      const u8* nulls = columns.nulls[i];
      const u64 least = columns.leasts[i], count = columns.counts[i], radix = columns.radixes[i];
      columns.with_values(i, [&](const auto* values) {
        for (u64 row = 0; row < rows; ++row) {
          const bool null = nulls && nulls[first + row];
          const u64 place = null ? count : rank_of(values[first + row]) - least;
          inside[row] &= place < (null ? radix : count);
          codes[row] = codes[row] * radix + place;
        }
      });
    }
    Word* const to = static_cast<Word*>(args.codes) + first;
    for (u64 row = 0; row < rows; ++row)
      to[row] = static_cast<Word>(inside[row] ? codes[row] : ~u64{0});
  });
}

}  // namespace dg

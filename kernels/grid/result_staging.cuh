/// Answers to the rows of a batch; those of a tile are gathered and written by the chunk.
#pragma once

#include "core/slot.cuh"
#include "grid/work_split.cuh"

namespace dg {

/// Where a flag, and a value unless there is none, goes for each row; null where nobody wants them.
template <class Value>
struct Answers {
  static constexpr bool has_value = !same<Value, NoValue>;

  Value* values;
  u8* flags;

  DG_FN void store(u64 row, bool flag, Value value) const {
    if constexpr (has_value)
      if (values) values[row] = value;
    if (flags) flags[row] = flag;
  }

  /// The same, and the caches keep what they have of a table.
  DG_FN void store_past_caches(u64 row, bool flag, Value value) const {
    if constexpr (has_value)
      if (values) store_leaving(values + row, value);
    if (flags) store_leaving(flags + row, static_cast<u8>(flag));
  }
};

/// Rows whose answers are written together, and rows whose answers are kept. On an H200 chunks of 32
/// rows were slower within the L2 cache, and 128 kept rows at high load.
inline constexpr u32 kChunkRows = 64;
inline constexpr u32 kKeptRows = 256;

/// A share of the rows with their answers.
///
/// Lanes that take new rows as they are done come out of step, and their answers reach memory as
/// pieces of sectors. So answers wait in memory of the block until the tile has taken so many rows
/// more that the chunk is most likely complete, and leave as whole sectors. A row that takes longer
/// is answered by itself afterwards; until then the chunk has whatever stood in its place.
template <u32 Width, class Value>
struct AnsweredShare : RowShare<Width, kChunkRows> {
  using Share = RowShare<Width, kChunkRows>;
  using To = Answers<Value>;

  struct alignas(kQuarterBytes) Kept {
    Value values[To::has_value ? kKeptRows : 1];
    alignas(kQuarterBytes) u8 flags[kKeptRows];
  };

  To to;
  Kept* kept;
  u32 written = 0;  // rows of the tile

  DG_FN AnsweredShare(const Share& share, const To& answers, Kept& memory)
      : Share(share), to(answers), kept(&memory) {}

  /// Answers the row that this lane serves, in the last step of it.
  DG_FN void answer(u64 row, bool flag, Value value) const {
    if (this->mine < written) return to.store(row, flag, value);
    const u32 place = this->mine % kKeptRows;
    if constexpr (To::has_value) kept->values[place] = value;
    kept->flags[place] = flag;
  }

  template <class Tile, class Begin, class Step>
  DG_FN void serve(Tile tile, const Begin& begin, const Step& step) {
    Share::serve(tile, begin, [&](u64 row, bool asked) {
      const bool more = step(row, asked);
      if (this->taken + Width > written + kKeptRows) write_chunk(tile);
      return more;
    });
    while (this->row_of(written) < this->end) write_chunk(tile);
  }

 private:
  template <class Tile>
  DG_FN void write_chunk(Tile tile) {
    const u64 row = this->row_of(written);
    const u64 left = row < this->end ? this->end - row : 0;
    const u32 rows = left < kChunkRows ? static_cast<u32>(left) : kChunkRows;
    const u32 place = written % kKeptRows;
    tile.sync();
    if constexpr (To::has_value)
      if (to.values) copy(tile, to.values + row, kept->values + place, rows);
    if (to.flags) copy(tile, to.flags + row, kept->flags + place, rows);
    // Late answers come after what was written in their places.
    tile.sync();
    written += kChunkRows;
  }

  template <class Tile, class Word>
  DG_FN static void copy(Tile tile, Word* to, const Word* from, u32 rows) {
    if (rows == kChunkRows) {
      constexpr u32 quarters = kChunkRows * sizeof(Word) / kQuarterBytes;
      for (u32 at = tile.lane(); at < quarters; at += Width)
        store_quarter(reinterpret_cast<Quarter*>(to) + at,
                      reinterpret_cast<const Quarter*>(from)[at]);
    } else {
      for (u32 at = tile.lane(); at < rows; at += Width) to[at] = from[at];
    }
  }
};

/// `body(tile, share, tally)` answers a tile's share of the rows. The arrays of answers are aligned to
/// 16 bytes.
template <u32 Width, class Value, u32 counters, class Body>
DG_FN void for_each_answered(u64 rows, const Totals<counters>& totals, const Answers<Value>& to,
                             const Body& body) {
  using Share = AnsweredShare<Width, Value>;
  for_each_share_with<Width, kChunkRows, typename Share::Kept>(
      rows, totals,
      [&](auto tile, const auto& share, typename Share::Kept& kept, Tally<counters>& tally) {
        Share answered(share, to, kept);
        body(tile, answered, tally);
      });
}

}  // namespace dg

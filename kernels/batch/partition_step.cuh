/// A step of a partition: the block ranks as many rows as shared memory holds (part_place.cuh), brings them
/// into part order there, and writes runs (part_move.cuh).
///
/// Only whole granules, 32 aligned bytes, are written: what is left of a part waits in shared memory
/// for the next step, and is written row by row after the last one, so a granule is cut where a segment
/// begins or ends only. Runs of 64 bytes at any place took 3.5 ms where these take 2.0 (H200, 2**28
/// pairs of 4 + 4 bytes, 256 parts).
#pragma once

#include "core/block.cuh"
#include "core/platform.cuh"
#include "core/slot.cuh"

namespace dg {

/// Rows of one part: as they came, or in any order, which takes fewer instructions and less memory.
enum class Within { order, any_order };

/// Parts of one pass. As in dgpuhash/backend/constants.py.
template <class Block, Within within>
inline constexpr u32 kPassParts = Block::threads == 1       ? 2048
                                  : within == Within::order ? 256
                                                            : 512;

/// What a pass moves.
template <class Key, class Value>
struct PartColumns {
  const Key* keys;
  const Value* values;
  Key* keys_to;  // or null
  Value* values_to;
  i64* numbers_to;  // or null; the rows' numbers, of rows that stay in order
};

/// Rows that a thread brings to a step, in bytes of the widest column. Where a block has room they are so many
/// that it has a multiprocessor to itself: few blocks leave few lines unfinished, and these stay in the L2 cache
/// until they are whole. With more, and where the columns differ, they would spill.
DG_FN constexpr u32 item_nbytes(u32 narrow, u32 wide, bool pairs_in_order) {
  const u32 usual = kBlockKib < 99 ? 16 : kBlockKib < 163 ? 32 : 64;
  if (kBlockKib < 227) return narrow < wide ? usual / 4 * 3 : usual;
  return narrow < sizeof(u64) ? usual : pairs_in_order ? 72 : 96;
}

/// Of the narrowest column; half a sector where there is no room for held rows of all parts.
DG_FN constexpr u32 granule_nbytes(u32 narrow, u32 wide, bool in_order) {
  return kBlockKib < 99 || (kBlockKib < 163 && narrow < wide && !in_order) ? 16 : 32;
}

/// A step's rows in shared memory. What is written are granules: 32 aligned bytes of the narrowest
/// column. Rows that do not fill one are held until others of their part come.
template <class Block, class Key, class Value, Within within>
struct PartStep {
  static constexpr u32 parts = kPassParts<Block, within>;
  static constexpr bool in_order = within == Within::order;
  // Of tiles that count their rows by themselves, or of all of them.
  static constexpr u32 counting = in_order ? Block::tiles : 1;
  static constexpr bool has_values = !same<Value, NoValue>;
  static constexpr u32 value_nbytes = has_values ? sizeof(Value) : sizeof(Key);
  static constexpr u32 narrow = sizeof(Key) < value_nbytes ? sizeof(Key) : value_nbytes;
  static constexpr u32 wide = sizeof(Key) < value_nbytes ? value_nbytes : sizeof(Key);

  static constexpr u32 items = item_nbytes(narrow, wide, in_order&& has_values) / wide;
  static constexpr u32 rows = Block::threads * items;
  static constexpr u32 granule = granule_nbytes(narrow, wide, in_order) / narrow;
  static constexpr u32 held = parts * granule;
  // A part's held rows are fewer than a granule.
  static constexpr u32 room = rows + held;

  union {  // one column at a time, in part order
    Key keys[room];
    Value values[room];
    u32 numbers[room];
  } staged;
  // Of each part the rows that are held, before them room for those that other segments bring to
  // the same granule.
  Key held_keys[held];
  Value held_values[has_values ? held : 1];
  u32 held_numbers[in_order ? held : 1];
  // While rows are ranked: how many there are. Then where they begin, and above 16 bits where their
  // part ends.
  u32 counts[counting][parts];
  u32 cursors[parts];             // the next granule in memory
  u32 shifts[parts];              // from granules of the step to granules in memory
  unsigned short filled[parts];   // granules in the step
  unsigned short begins[parts];   // of the parts in the step
  unsigned short waiting[parts];  // held rows
  unsigned short moving[parts];   // held rows that this step writes
  unsigned short missing[parts];  // of those the ones that other segments bring
  u32 granules[room / granule];   // where the step's granules go in memory, or one of `partial`
  u64 partial[parts];             // the first granule of a part: those missing, and where it is
  u32 scratch[Block::tiles];
  u32 total;       // staged rows
  u64 partial_at;  // the step that last had partial granules
  u64 many_at;     // the step that last had a part of many granules
};

/// A block of one lane writes row by row.
template <class Block, class Key, class Value, Within within>
  requires(Block::threads == 1)
struct PartStep<Block, Key, Value, within> {
  static constexpr u32 parts = kPassParts<Block, within>;
  u64 cursors[parts];
};

/// Marks a granule that other segments have rows in.
inline constexpr u32 kPartial = 1u << 31;

template <class Key, class Value, Within within>
struct PartStepOf {
  template <class Block>
  using In = PartStep<Block, Key, Value, within>;
};

/// The segment's rows of a part begin at `place`, maybe amid a granule.
template <class Block, class Key, class Value, Within within>
DG_FN void open_part(PartStep<Block, Key, Value, within>& step, u32 part, u64 place) {
  if constexpr (Block::threads == 1) {
    step.cursors[part] = place;
  } else {
    if (part == 0) step.partial_at = step.many_at = ~0ull;
    step.cursors[part] = static_cast<u32>(place / step.granule);
    step.missing[part] = static_cast<unsigned short>(place % step.granule);
    step.waiting[part] = step.missing[part];
  }
}

}  // namespace dg

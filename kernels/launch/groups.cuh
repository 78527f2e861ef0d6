/// Dense numbers for keys: place the keys, rank their first rows, look the numbers up.
#pragma once

#include "batch/row_set.cuh"
#include "batch/select.cuh"
#include "core/fields.cuh"
#include "grid/interleaved.cuh"
#include "table/groups.cuh"

namespace dg {

struct GroupClearArgs {
  GroupStorage table;
  u64 ones;  // bit i: word i of each record begins as all ones, else as 0
  u64 n;     // words

  DG_FIELDS(table, ones, n)
};

struct GroupPlaceArgs {
  GroupStorage table;
  const void* keys;
  u64* slots;     // or null; where each row's key stands
  u64* created;   // added to: keys that were not there before
  u64* refused;   // set to 1 when a key found no place; no further keys are tried then
  u64 first_row;  // of this launch
  u64 rows;       // behind the last one
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, keys, slots, created, refused, first_row, rows, segment_rows, n)
};

struct GroupInOrderArgs {
  GroupStorage table;
  const void* keys;
  u64* codes;       // or null; the number of each row's key
  i64* first_rows;  // or null; by number
  u64* reached;     // the row that comes next, and how many keys have numbers: before and after
  u64 rows;         // behind the last one
  u64 most;         // keys for which the table has room
  u64 n;            // 1

  DG_FIELDS(table, keys, codes, first_rows, reached, rows, most, n)
};

struct GroupFindArgs {
  GroupStorage table;
  const void* keys;
  u64* words;   // first rows or numbers; ~0 for keys that are not there
  u64* counts;  // or null; keys of each segment that are there
  u64 rows;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, keys, words, counts, rows, segment_rows, n)
};

struct GroupMarkArgs {
  GroupStorage table;
  RowSet first_rows;  // empty
  u64 n;              // records

  DG_FIELDS(table, first_rows, n)
};

struct GroupCountArgs {
  RowSet first_rows;
  u64* counts;  // rows of each word
  u64 n;        // words

  DG_FIELDS(first_rows, counts, n)
};

struct GroupRankArgs {
  RowSet first_rows;
  const u64* ends;  // sums of the counts, each word's own included
  i64* rows;        // the set in order
  u64 n;            // words

  DG_FIELDS(first_rows, ends, rows, n)
};

struct GroupNumberArgs {
  GroupStorage table;
  RowSet first_rows;
  u64 n;  // records

  DG_FIELDS(table, first_rows, n)
};

struct GroupEnumerateArgs {
  GroupStorage table;
  u64* numbered;  // added to: keys that have numbers
  u64 rows;       // records
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(table, numbered, rows, segment_rows, n)
};

struct GroupCodesArgs {
  GroupStorage table;
  u64* slots;  // replaced by the numbers
  u64 n;

  DG_FIELDS(table, slots, n)
};

DG_KERNEL group_clear(GroupClearArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 word) {
    args.table.records[word] = args.ones >> (word & (args.table.words - 1)) & 1 ? ~0ull : 0;
  });
}

// Lanes end their walks one by one. Left alone, each would store by itself and read its next key by
// itself: on an H200, with 2^20 groups, two thirds of the time. So they meet after a walk.

template <class Key, int W>
DG_KERNEL group_place(GroupPlaceArgs args) {
  const GroupTable table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_segment<W>(args.n, args.segment_rows, Totals<1>{{args.created}},
                      [&](auto tile, u64 segment, Tally<1>& created) {
                        if (tile.any(atomic_load_stale(args.refused) != 0)) return;
                        const u64 first = args.first_row + segment * args.segment_rows;
                        const u64 last = first + args.segment_rows < args.rows
                                             ? first + args.segment_rows
                                             : args.rows;
                        const auto tell = [&](u64 row, const GroupTable::Placed& placed) {
                          if (args.slots) args.slots[row] = placed.slot;
                          created.of[0] += placed.created;
                          if (placed.slot == GroupTable::kNone)
                            atomic_store<Order::relaxed>(args.refused, u64{1});
                        };
                        if constexpr (kInTurns<W>) {
                          take_turns(
                              first, last, [&](u64 row) { return table.begin(keys[row]); },
                              [&](u64 row, auto& walk) {
                                GroupTable::Placed placed;
                                if (table.place_step(keys[row], row, walk, placed)) return true;
                                tell(row, placed);
                                return false;
                              });
                        } else {
                          for_each_step(tile, first, last, [&](u64 row, bool inside) {
                            GroupTable::Placed placed{0, false};
                            if (inside) placed = table.place(keys[row], row);
                            tile.sync();
                            if (inside) tell(row, placed);
                          });
                        }
                      });
}

/// Numbers keys by one lane in the order of rows, until all have numbers or the table has no more room.
/// On one core that is the least work: nothing is ranked, and no row is visited twice.
template <class Key, int W>
DG_KERNEL group_in_order(GroupInOrderArgs args) {
  const GroupTable table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_tile<W>(args.n, [&](auto tile, u64) {
    if (tile.lane() != 0) return;
    // Walks that are asked for together; a GPU would keep them in memory.
    constexpr u32 ahead = DG_GPU ? 1 : 32;
    GroupTable::Walk walks[ahead];
    u64 row = args.reached[0], numbered = args.reached[1];
    bool refused = false;
    while (row < args.rows && numbered < args.most && !refused) {
      const u32 some = static_cast<u32>(args.rows - row < ahead ? args.rows - row : ahead);
      for (u32 i = 0; i < some; ++i) walks[i] = table.begin(keys[row + i]);
      for (u32 i = 0; i < some && numbered < args.most; ++i, ++row) {
        const u64 number = table.number(keys[row], numbered, walks[i]);
        refused = number == GroupTable::kNone;
        if (refused) break;
        if (args.codes) args.codes[row] = number;
        if (number != numbered) continue;
        if (args.first_rows) args.first_rows[numbered] = static_cast<i64>(row);
        ++numbered;
      }
    }
    args.reached[0] = row;
    args.reached[1] = numbered;
  });
}

template <class Key, int W>
DG_KERNEL group_find(GroupFindArgs args) {
  const GroupTable table{args.table};
  const Key* keys = static_cast<const Key*>(args.keys);
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows;
    const u64 last = first + args.segment_rows < args.rows ? first + args.segment_rows : args.rows;
    u32 found = 0;
    if constexpr (kInTurns<W>) {
      take_turns(
          first, last, [&](u64 row) { return table.begin(keys[row]); },
          [&](u64 row, auto& walk) {
            GroupTable::Found at;
            if (table.find_step(keys[row], walk, at)) return true;
            args.words[row] = at.word;
            found += at.word != GroupTable::kNone;
            return false;
          });
    } else {
      for_each_step(tile, first, last, [&](u64 row, bool inside) {
        const u64 word = inside ? table.find(keys[row]).word : GroupTable::kNone;
        tile.sync();
        if (inside) args.words[row] = word;
        if (args.counts) found += count_ones(tile.ballot(word != GroupTable::kNone));
      });
    }
    if (args.counts && tile.lane() == 0) args.counts[segment] = found;
  });
}

DG_KERNEL group_mark(GroupMarkArgs args) {
  const GroupTable table{args.table};
  for_each_tile<1>(args.n, [&](auto, u64 slot) {
    const u64 row = table.record(slot)[1];
    if (row != GroupTable::kNone) args.first_rows.add(row);
  });
}

DG_KERNEL group_count(GroupCountArgs args) {
  for_each_tile<1>(args.n,
                   [&](auto, u64 word) { args.counts[word] = args.first_rows.count(word); });
}

template <int W>
DG_KERNEL group_rank(GroupRankArgs args) {
  for_each_tile<W>(args.n, [&](auto tile, u64 word) {
    args.first_rows.write_rows(tile, word, args.ends[word], args.rows);
  });
}

DG_KERNEL group_number(GroupNumberArgs args) {
  const GroupTable table{args.table};
  for_each_tile<1>(args.n, [&](auto, u64 slot) {
    u64* const word = table.record(slot) + 1;
    if (*word != GroupTable::kNone) *word = args.first_rows.rank(*word);
  });
}

/// Replaces first rows by dense numbers in any order, which needs no ranks.
template <int W>
DG_KERNEL group_enumerate(GroupEnumerateArgs args) {
  const GroupTable table{args.table};
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    const u64 first = segment * args.segment_rows, last = end_of_rows(args, segment);
    const auto taken = [&](u64 slot) { return table.record(slot)[1] != GroupTable::kNone; };
    u64 count = 0;
    for_each_step(tile, first, last, [&](u64 slot, bool inside) {
      count += count_ones(tile.ballot(inside && taken(slot)));
    });
    u64 next = 0;
    if (tile.lane() == 0) next = atomic_fetch_add<Order::relaxed>(args.numbered, count);
    select_rows(tile, first, last, tile.shuffle(next, 0), taken,
                [&](u64 slot, u64 number) { table.record(slot)[1] = number; });
  });
}

DG_KERNEL group_codes(GroupCodesArgs args) {
  const GroupTable table{args.table};
  for_each_tile<1>(
      args.n, [&](auto, u64 row) { args.slots[row] = table.record(args.slots[row])[1]; },
      [&](u64 row) { prefetch(table.record(args.slots[row])); });
}

}  // namespace dg

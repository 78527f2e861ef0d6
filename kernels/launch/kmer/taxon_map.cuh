/// Minimizers and the lowest common ancestors of the taxa that have each, in words of eight bytes. Rows are
/// minimizers, given by a batch or, of `taxon_map_items`, by their slots.
#pragma once

#include "core/fields.cuh"
#include "grid/interleaved.cuh"
#include "grid/result_staging.cuh"
#include "kmer/spaced_bits.cuh"
#include "table/quotient.cuh"

namespace dg {

struct TaxonFoldArgs {
  QuotientStorage table;
  SpacedBits spaced;
  Tree tree;
  const u64* keys;
  const u32* nodes;
  u64 n;

  DG_FIELDS(table, spaced, tree, keys, nodes, n)
};

struct TaxonFindArgs {
  QuotientStorage table;
  SpacedBits spaced;
  const u64* keys;
  u32* nodes;  // of each key; 0 of those that are not there
  u64 n;

  DG_FIELDS(table, spaced, keys, nodes, n)
};

struct TaxonItemsArgs {
  QuotientStorage table;
  SpacedBits spaced;
  const i64* slots;  // that are not free
  u64* keys;
  u32* nodes;
  u64 n;

  DG_FIELDS(table, spaced, slots, keys, nodes, n)
};

/// Stores minimizers with their nodes, and changes the nodes of stored ones to the lowest common ancestors of all.
/// What found no place is counted, and may be given again with all others of its batch: nothing changes by that.
template <int W>
DG_KERNEL taxon_map_fold(TaxonFoldArgs args) {
  const QuotientTable table{args.table};
  const Totals<2> totals{{args.table.created, args.table.homeless}};
  if constexpr (kInTurns<W>) {
    for_each_in_turns(
        args.n, totals,
        [&](u64 row) {
          const auto walk = table.begin(args.spaced.packed(args.keys[row]));
          table.ask_for(walk);
          return walk;
        },
        [&](u64 row, auto& walk, Tally<2>& tally) {
          while (true) {
            const auto seen = table.look<Access::shared>(Tile<1>{}, walk);
            if (seen.hit) {
              table.fold(seen.slot, args.nodes[row], args.tree);
              return false;
            }
            if (seen.gap) {
              // Another key took the word: the line is read again.
              if (!table.publish(seen.slot, walk, args.nodes[row])) continue;
              ++tally.of[0];
              return false;
            }
            if (table.next(walk)) break;
            ++tally.of[1];
            return false;
          }
          table.ask_for(walk);
          return true;
        });
  } else {
    for_each_share<W>(args.n, totals, [&](auto tile, auto& rows, Tally<2>& tally) {
      QuotientTable::Walk walk{0, 0};
      u32 node = 0;
      rows.serve(
          tile,
          [&](u64 row) {
            walk = table.begin(args.spaced.packed(load_leaving(args.keys + row)));
            node = load_leaving(args.nodes + row);
            return true;
          },
          [&](u64, bool asked) {
            const auto seen = table.look<Access::shared>(tile, walk);
            bool more = false;
            if (asked && !seen.hit) {
              if (seen.gap) {
                more = !table.publish(seen.slot, walk, node);
                tally.of[0] += !more;
              } else {
                more = table.next(walk);
                tally.of[1] += !more;
              }
            }
            // Lanes that end one by one would go on one by one.
            tile.sync();
            if (asked && seen.hit) table.fold(seen.slot, node, args.tree);
            return more;
          });
    });
  }
}

template <int W>
DG_KERNEL taxon_map_find(TaxonFindArgs args) {
  const QuotientTable table{args.table};
  if constexpr (kInTurns<W>) {
    for_each_in_turns(
        args.n, Totals<0>{},
        [&](u64 row) {
          const auto walk = table.begin(args.spaced.packed(args.keys[row]));
          table.ask_for(walk);
          return walk;
        },
        [&](u64 row, auto& walk, Tally<0>&) {
          const auto seen = table.look<Access::frozen>(Tile<1>{}, walk);
          if (!seen.hit && !seen.gap && table.next(walk)) {
            table.ask_for(walk);
            return true;
          }
          args.nodes[row] = seen.hit ? table.node_in(args.table.words[seen.slot]) : 0;
          return false;
        });
  } else {
    const Answers<u32> answers{args.nodes, nullptr};
    for_each_answered<W>(args.n, Totals<0>{}, answers, [&](auto tile, auto& rows, Tally<0>&) {
      QuotientTable::Walk walk{0, 0};
      rows.serve(
          tile,
          [&](u64 row) {
            walk = table.begin(args.spaced.packed(args.keys[row]));
            return true;
          },
          [&](u64 row, bool asked) {
            const auto seen = table.look<Access::leaving>(tile, walk);
            if (!asked) return false;
            if (!seen.hit && !seen.gap && table.next(walk)) return true;
            rows.answer(row, seen.hit, seen.hit ? table.node_in(args.table.words[seen.slot]) : 0);
            return false;
          });
    });
  }
}

/// The minimizers and nodes in some slots.
DG_KERNEL taxon_map_items(TaxonItemsArgs args) {
  const QuotientTable table{args.table};
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const u64 slot = static_cast<u64>(args.slots[row]), word = args.table.words[slot];
    args.keys[row] = args.spaced.spread(table.key_in(slot, word));
    args.nodes[row] = table.node_in(word);
  });
}

}  // namespace dg

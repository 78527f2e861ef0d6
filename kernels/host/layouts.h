/// Names, offsets and sizes of the fields that Python fills in; a test compares them with
/// backend/args.py.
#pragma once

#include <cstddef>
#include <vector>

#include "launch/bucket_list.cuh"
#include "launch/contents.cuh"
#include "launch/groups.cuh"
#include "launch/hash.cuh"
#include "launch/join.cuh"
#include "launch/limits.cuh"
#include "launch/multisplit.cuh"
#include "launch/open.cuh"
#include "launch/reduce.cuh"

namespace dg {

struct Field {
  const char* name;
  std::size_t offset;
  std::size_t nbytes;
};

struct Layout {
  const char* name;
  std::size_t nbytes;
  std::vector<Field> fields;
};

#define DG_FIELD(Struct, field) \
  Field { #field, offsetof(Struct, field), sizeof(Struct::field) }

inline const std::vector<Layout> kLayouts = {
    {"OpenState",
     sizeof(OpenState),
     {DG_FIELD(OpenState, occupied), DG_FIELD(OpenState, erased), DG_FIELD(OpenState, pending),
      DG_FIELD(OpenState, side_present), DG_FIELD(OpenState, side_value)}},
    {"OpenStorage",
     sizeof(OpenStorage),
     {DG_FIELD(OpenStorage, keys), DG_FIELD(OpenStorage, values), DG_FIELD(OpenStorage, state),
      DG_FIELD(OpenStorage, windows), DG_FIELD(OpenStorage, seed)}},
    {"PoolState", sizeof(PoolState), {DG_FIELD(PoolState, used), DG_FIELD(PoolState, refused)}},
    {"Pool",
     sizeof(Pool),
     {DG_FIELD(Pool, slots), DG_FIELD(Pool, state), DG_FIELD(Pool, capacity)}},
    {"Growth",
     sizeof(Growth),
     {DG_FIELD(Growth, slots_end), DG_FIELD(Growth, levels), DG_FIELD(Growth, grain_shift)}},
    {"OpenInsertArgs",
     sizeof(OpenInsertArgs),
     {DG_FIELD(OpenInsertArgs, table), DG_FIELD(OpenInsertArgs, keys),
      DG_FIELD(OpenInsertArgs, values), DG_FIELD(OpenInsertArgs, fresh),
      DG_FIELD(OpenInsertArgs, pending_rows), DG_FIELD(OpenInsertArgs, n),
      DG_FIELD(OpenInsertArgs, limit), DG_FIELD(OpenInsertArgs, overwrite)}},
    {"OpenFindArgs",
     sizeof(OpenFindArgs),
     {DG_FIELD(OpenFindArgs, table), DG_FIELD(OpenFindArgs, keys), DG_FIELD(OpenFindArgs, values),
      DG_FIELD(OpenFindArgs, found), DG_FIELD(OpenFindArgs, n),
      DG_FIELD(OpenFindArgs, default_value)}},
    {"OpenEraseArgs",
     sizeof(OpenEraseArgs),
     {DG_FIELD(OpenEraseArgs, table), DG_FIELD(OpenEraseArgs, keys),
      DG_FIELD(OpenEraseArgs, erased), DG_FIELD(OpenEraseArgs, n)}},
    {"OpenCountArgs",
     sizeof(OpenCountArgs),
     {DG_FIELD(OpenCountArgs, table), DG_FIELD(OpenCountArgs, counts), DG_FIELD(OpenCountArgs, n)}},
    {"OpenItemsArgs",
     sizeof(OpenItemsArgs),
     {DG_FIELD(OpenItemsArgs, table), DG_FIELD(OpenItemsArgs, offsets),
      DG_FIELD(OpenItemsArgs, keys), DG_FIELD(OpenItemsArgs, values), DG_FIELD(OpenItemsArgs, n)}},
    {"OpenLinesArgs",
     sizeof(OpenLinesArgs),
     {DG_FIELD(OpenLinesArgs, table), DG_FIELD(OpenLinesArgs, lines), DG_FIELD(OpenLinesArgs, n)}},
    {"ListStorage",
     sizeof(ListStorage),
     {DG_FIELD(ListStorage, keys), DG_FIELD(ListStorage, pool), DG_FIELD(ListStorage, growth)}},
    {"ListNeedArgs",
     sizeof(ListNeedArgs),
     {DG_FIELD(ListNeedArgs, table), DG_FIELD(ListNeedArgs, run_keys),
      DG_FIELD(ListNeedArgs, run_offsets), DG_FIELD(ListNeedArgs, slots),
      DG_FIELD(ListNeedArgs, absent), DG_FIELD(ListNeedArgs, n)}},
    {"ListAppendArgs",
     sizeof(ListAppendArgs),
     {DG_FIELD(ListAppendArgs, table), DG_FIELD(ListAppendArgs, run_keys),
      DG_FIELD(ListAppendArgs, run_offsets), DG_FIELD(ListAppendArgs, values),
      DG_FIELD(ListAppendArgs, places), DG_FIELD(ListAppendArgs, pending_runs),
      DG_FIELD(ListAppendArgs, n), DG_FIELD(ListAppendArgs, limit)}},
    {"ListCountArgs",
     sizeof(ListCountArgs),
     {DG_FIELD(ListCountArgs, table), DG_FIELD(ListCountArgs, keys),
      DG_FIELD(ListCountArgs, counts), DG_FIELD(ListCountArgs, n)}},
    {"ListRetrieveArgs",
     sizeof(ListRetrieveArgs),
     {DG_FIELD(ListRetrieveArgs, table), DG_FIELD(ListRetrieveArgs, keys),
      DG_FIELD(ListRetrieveArgs, offsets), DG_FIELD(ListRetrieveArgs, values),
      DG_FIELD(ListRetrieveArgs, n)}},
    {"GroupPlaceArgs",
     sizeof(GroupPlaceArgs),
     {DG_FIELD(GroupPlaceArgs, table), DG_FIELD(GroupPlaceArgs, keys),
      DG_FIELD(GroupPlaceArgs, slots), DG_FIELD(GroupPlaceArgs, refused),
      DG_FIELD(GroupPlaceArgs, n), DG_FIELD(GroupPlaceArgs, first_row),
      DG_FIELD(GroupPlaceArgs, limit), DG_FIELD(GroupPlaceArgs, repeats)}},
    {"GroupNumberArgs",
     sizeof(GroupNumberArgs),
     {DG_FIELD(GroupNumberArgs, table), DG_FIELD(GroupNumberArgs, slots),
      DG_FIELD(GroupNumberArgs, first_rows), DG_FIELD(GroupNumberArgs, n)}},
    {"GroupCodesArgs",
     sizeof(GroupCodesArgs),
     {DG_FIELD(GroupCodesArgs, table), DG_FIELD(GroupCodesArgs, slots),
      DG_FIELD(GroupCodesArgs, n)}},
    {"ReduceColumn",
     sizeof(ReduceColumn),
     {DG_FIELD(ReduceColumn, values), DG_FIELD(ReduceColumn, totals),
      DG_FIELD(ReduceColumn, reading), DG_FIELD(ReduceColumn, term), DG_FIELD(ReduceColumn, fold)}},
    {"ReduceBatch",
     sizeof(ReduceBatch),
     {DG_FIELD(ReduceBatch, codes), DG_FIELD(ReduceBatch, order), DG_FIELD(ReduceBatch, columns),
      DG_FIELD(ReduceBatch, column_count), DG_FIELD(ReduceBatch, alone),
      DG_FIELD(ReduceBatch, wide)}},
    {"ReduceArgs",
     sizeof(ReduceArgs),
     {DG_FIELD(ReduceArgs, batch), DG_FIELD(ReduceArgs, edges), DG_FIELD(ReduceArgs, rows),
      DG_FIELD(ReduceArgs, segment_rows), DG_FIELD(ReduceArgs, groups),
      DG_FIELD(ReduceArgs, copies), DG_FIELD(ReduceArgs, n)}},
    {"JoinSides",
     sizeof(JoinSides),
     {DG_FIELD(JoinSides, offsets), DG_FIELD(JoinSides, keys), DG_FIELD(JoinSides, starts),
      DG_FIELD(JoinSides, right_rows), DG_FIELD(JoinSides, left_rows)}},
    {"JoinPairsArgs",
     sizeof(JoinPairsArgs),
     {DG_FIELD(JoinPairsArgs, sides), DG_FIELD(JoinPairsArgs, left), DG_FIELD(JoinPairsArgs, right),
      DG_FIELD(JoinPairsArgs, pairs), DG_FIELD(JoinPairsArgs, segment_pairs),
      DG_FIELD(JoinPairsArgs, n)}},
    {"MultisplitArgs",
     sizeof(MultisplitArgs),
     {DG_FIELD(MultisplitArgs, destinations), DG_FIELD(MultisplitArgs, counters),
      DG_FIELD(MultisplitArgs, order), DG_FIELD(MultisplitArgs, rows),
      DG_FIELD(MultisplitArgs, parts), DG_FIELD(MultisplitArgs, segment_rows),
      DG_FIELD(MultisplitArgs, n)}},
    {"HashKeysArgs",
     sizeof(HashKeysArgs),
     {DG_FIELD(HashKeysArgs, keys), DG_FIELD(HashKeysArgs, hashes), DG_FIELD(HashKeysArgs, n),
      DG_FIELD(HashKeysArgs, seed)}},
    {"HashStringsArgs",
     sizeof(HashStringsArgs),
     {DG_FIELD(HashStringsArgs, offsets), DG_FIELD(HashStringsArgs, bytes),
      DG_FIELD(HashStringsArgs, hashes), DG_FIELD(HashStringsArgs, n),
      DG_FIELD(HashStringsArgs, seed)}},
    {"HashCombineArgs",
     sizeof(HashCombineArgs),
     {DG_FIELD(HashCombineArgs, hashes), DG_FIELD(HashCombineArgs, next),
      DG_FIELD(HashCombineArgs, n)}},
    {"OwnerOfArgs",
     sizeof(OwnerOfArgs),
     {DG_FIELD(OwnerOfArgs, hashes), DG_FIELD(OwnerOfArgs, owners), DG_FIELD(OwnerOfArgs, n),
      DG_FIELD(OwnerOfArgs, parts)}},
    {"LimitArgs",
     sizeof(LimitArgs),
     {DG_FIELD(LimitArgs, keys), DG_FIELD(LimitArgs, values), DG_FIELD(LimitArgs, slots),
      DG_FIELD(LimitArgs, n), DG_FIELD(LimitArgs, slot_count)}},
    {"LimitArgs",
     sizeof(LimitArgs),
     {DG_FIELD(LimitArgs, keys), DG_FIELD(LimitArgs, values), DG_FIELD(LimitArgs, slots),
      DG_FIELD(LimitArgs, n), DG_FIELD(LimitArgs, slot_count)}},
};

#undef DG_FIELD

}  // namespace dg

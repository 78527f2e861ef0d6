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
#include "launch/runs.cuh"

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
    {"ListRecord",
     sizeof(ListRecord),
     {DG_FIELD(ListRecord, start), DG_FIELD(ListRecord, count), DG_FIELD(ListRecord, listed),
      DG_FIELD(ListRecord, tail)}},
    {"Growth",
     sizeof(Growth),
     {DG_FIELD(Growth, slots_end), DG_FIELD(Growth, levels), DG_FIELD(Growth, link_slots)}},
    {"ListStorage",
     sizeof(ListStorage),
     {DG_FIELD(ListStorage, growth), DG_FIELD(ListStorage, pool), DG_FIELD(ListStorage, records)}},
    {"ListPieces",
     sizeof(ListPieces),
     {DG_FIELD(ListPieces, begins), DG_FIELD(ListPieces, handles)}},
    {"ListSettleArgs",
     sizeof(ListSettleArgs),
     {DG_FIELD(ListSettleArgs, table), DG_FIELD(ListSettleArgs, starts),
      DG_FIELD(ListSettleArgs, handles), DG_FIELD(ListSettleArgs, recorded),
      DG_FIELD(ListSettleArgs, n)}},
    {"ListMeasureArgs",
     sizeof(ListMeasureArgs),
     {DG_FIELD(ListMeasureArgs, table), DG_FIELD(ListMeasureArgs, handles),
      DG_FIELD(ListMeasureArgs, counts), DG_FIELD(ListMeasureArgs, pieces),
      DG_FIELD(ListMeasureArgs, n)}},
    {"ListLocateArgs",
     sizeof(ListLocateArgs),
     {DG_FIELD(ListLocateArgs, table), DG_FIELD(ListLocateArgs, to),
      DG_FIELD(ListLocateArgs, handles), DG_FIELD(ListLocateArgs, offsets),
      DG_FIELD(ListLocateArgs, places), DG_FIELD(ListLocateArgs, n)}},
    {"ListPlanArgs",
     sizeof(ListPlanArgs),
     {DG_FIELD(ListPlanArgs, table), DG_FIELD(ListPlanArgs, handles),
      DG_FIELD(ListPlanArgs, run_offsets), DG_FIELD(ListPlanArgs, slots),
      DG_FIELD(ListPlanArgs, records), DG_FIELD(ListPlanArgs, pieces), DG_FIELD(ListPlanArgs, n)}},
    {"ListAppendArgs",
     sizeof(ListAppendArgs),
     {DG_FIELD(ListAppendArgs, table), DG_FIELD(ListAppendArgs, to),
      DG_FIELD(ListAppendArgs, handles), DG_FIELD(ListAppendArgs, run_offsets),
      DG_FIELD(ListAppendArgs, slots), DG_FIELD(ListAppendArgs, records),
      DG_FIELD(ListAppendArgs, places), DG_FIELD(ListAppendArgs, n)}},
    {"ListMoveArgs",
     sizeof(ListMoveArgs),
     {DG_FIELD(ListMoveArgs, table), DG_FIELD(ListMoveArgs, offsets),
      DG_FIELD(ListMoveArgs, handles), DG_FIELD(ListMoveArgs, values),
      DG_FIELD(ListMoveArgs, pieces), DG_FIELD(ListMoveArgs, rows),
      DG_FIELD(ListMoveArgs, segment_rows), DG_FIELD(ListMoveArgs, n)}},
    {"RunOrder",
     sizeof(RunOrder),
     {DG_FIELD(RunOrder, seed), DG_FIELD(RunOrder, spread), DG_FIELD(RunOrder, key_mask)}},
    {"RunCountArgs",
     sizeof(RunCountArgs),
     {DG_FIELD(RunCountArgs, order), DG_FIELD(RunCountArgs, keys), DG_FIELD(RunCountArgs, counts),
      DG_FIELD(RunCountArgs, mixed), DG_FIELD(RunCountArgs, mixed_rows),
      DG_FIELD(RunCountArgs, mixed_most), DG_FIELD(RunCountArgs, rows),
      DG_FIELD(RunCountArgs, segment_rows), DG_FIELD(RunCountArgs, n)}},
    {"RunWriteArgs",
     sizeof(RunWriteArgs),
     {DG_FIELD(RunWriteArgs, keys), DG_FIELD(RunWriteArgs, places), DG_FIELD(RunWriteArgs, starts),
      DG_FIELD(RunWriteArgs, run_keys), DG_FIELD(RunWriteArgs, rows),
      DG_FIELD(RunWriteArgs, segment_rows), DG_FIELD(RunWriteArgs, n)}},
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

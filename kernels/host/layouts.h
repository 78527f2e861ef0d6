/// Names, offsets and sizes of the fields that Python fills in; a test compares them with
/// backend/args.py.
#pragma once

#include <cstddef>
#include <vector>

#include "launch/limits.cuh"
#include "launch/open.cuh"

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
    {"OpenStorage",
     sizeof(OpenStorage),
     {DG_FIELD(OpenStorage, keys), DG_FIELD(OpenStorage, values), DG_FIELD(OpenStorage, state),
      DG_FIELD(OpenStorage, windows), DG_FIELD(OpenStorage, seed)}},
    {"OpenState",
     sizeof(OpenState),
     {DG_FIELD(OpenState, occupied), DG_FIELD(OpenState, erased), DG_FIELD(OpenState, pending),
      DG_FIELD(OpenState, side_present), DG_FIELD(OpenState, side_value)}},
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
    {"LimitArgs",
     sizeof(LimitArgs),
     {DG_FIELD(LimitArgs, keys), DG_FIELD(LimitArgs, values), DG_FIELD(LimitArgs, slots),
      DG_FIELD(LimitArgs, n), DG_FIELD(LimitArgs, slot_count)}},
};

#undef DG_FIELD

}  // namespace dg

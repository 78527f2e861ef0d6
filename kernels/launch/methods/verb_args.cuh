/// What the verbs of launch/verbs.cuh take, by the storage of a method's table.
#pragma once

#include "core/fields.cuh"

namespace dg::verb {

template <class Storage>
struct InsertArgs {
  Storage table;
  const void* keys;
  const void* values;  // unused by sets
  const u64* rows;     // or null: the rows to insert, all of the batch
  u8* fresh;           // or null; 1 in the one row that created each new key, 0 elsewhere
  u64* pending_rows;   // or null; the rows that found no place, in any order
  u64 n;
  u64 action;  // an OnExisting
  u64 kind;    // a ValueKind, and the bits that values leave: `change_of`

  DG_FIELDS(table, keys, values, rows, fresh, pending_rows, n, action, kind)
};

template <class Storage>
struct FindArgs {
  Storage table;
  const void* keys;
  void* values;  // or null
  u8* found;     // or null
  u64 n;
  u64 default_value;  // bits written where the key is absent

  DG_FIELDS(table, keys, values, found, n, default_value)
};

template <class Storage>
struct EraseArgs {
  Storage table;
  const void* keys;
  u8* erased;  // or null; 1 in one row of each key that was removed
  u64 n;

  DG_FIELDS(table, keys, erased, n)
};

template <class Storage>
struct PlacesArgs {
  Storage table;
  u32* counts;         // of each segment, the places that hold a key
  const u64* offsets;  // the exclusive sums of the counts: where each segment's keys go
  void* keys;
  void* values;      // or null
  u64 rows;          // places
  u64 segment_rows;  // places of a segment
  u64 n;             // segments

  DG_FIELDS(table, counts, offsets, keys, values, rows, segment_rows, n)
};

template <class Storage>
struct RehashArgs {
  Storage table;
  Storage target;
  u64* pending_rows;  // or null; the places whose keys found no place in the target
  u64 n;              // places

  DG_FIELDS(table, target, pending_rows, n)
};

template <class Storage>
struct ProbesArgs {
  Storage table;
  const void* keys;
  u64* total;
  u64 n;
  u32* counts = nullptr;  // or what the search for each key reads

  DG_FIELDS(table, keys, total, n, counts)
};

template <class Storage>
struct ValueCountArgs {
  Storage table;
  const void* keys;
  u64* counts;
  u64 n;

  DG_FIELDS(table, keys, counts, n)
};

template <class Storage>
struct GatherArgs {
  Storage table;
  const void* keys;
  const u64* offsets;  // where each row's values go
  void* values;
  const void* side_values[2];  // of the reserved keys
  u64 n;

  DG_FIELDS(table, keys, offsets, values, side_values, n)
};

}  // namespace dg::verb

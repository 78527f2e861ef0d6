/// All values of a key: a run of neighbouring places, and behind it a linked list of growing buckets,
/// the bucket list hash table of WarpCore §IV-C.
///
/// A key table elsewhere maps each key to an entry (table/list_entries.cuh), and that to a handle. A
/// key's first values are one run, of exactly as many places; most keys have nothing else. Values that
/// come later go into buckets, and the key gets a record. A key's only value needs no place in the pool.
///
/// Invariants
///  * A launch changes a handle, its record and its list by one tile only: batches come grouped.
///  * A link to the bucket before it leads every bucket but a list's first.
///  * The sizes of a list's buckets follow from their number alone, so its count and its last bucket
///    tell where all values are.
#pragma once

#include "core/fields.cuh"
#include "core/platform.cuh"

namespace dg {

/// In device memory, for keys whose values are not one short run.
struct ListRecord {
  u64 start;   // of the run
  u64 count;   // values in the run
  u64 listed;  // values in buckets
  u64 tail;    // first slot of the last bucket

  DG_FIELDS(start, count, listed, tail)
};

/// Packed: 2 bits kind; a run's start (36 bits) and count (26 bits), a record's number, or where among
/// the words that were asked for an only value stands.
struct ListHandle {
  enum class Kind : u32 { run = 0, record = 1, value = 2, none = 3 };

  static constexpr u32 count_bits = 26;
  static constexpr u64 longest_run = (1ull << count_bits) - 1;

  u64 bits;

  DG_FN static ListHandle run(u64 start, u64 count) { return {start << count_bits | count}; }
  DG_FN static ListHandle record(u64 number) { return {1ull << 62 | number}; }
  DG_FN static ListHandle value(u64 word) { return {2ull << 62 | word}; }
  DG_FN static ListHandle none() { return {~0ull}; }

  DG_FN Kind kind() const { return static_cast<Kind>(bits >> 62); }
  DG_FN u64 number() const { return bits & ((1ull << 62) - 1); }

  DG_FN ListRecord open(const ListRecord* records) const {
    if (kind() == Kind::none) return {0, 0, 0, 0};
    if (kind() == Kind::value) return {0, 1, 0, 0};
    if (kind() == Kind::record) return records[number()];
    return {bits >> count_bits, bits & longest_run, 0, 0};
  }

  static constexpr u64 outside = 1ull << 63;

  /// A slot of the pool, or `outside` and the number of a word.
  DG_FN u64 source() const {
    return kind() == Kind::value ? outside | number() : bits >> count_bits;
  }
};

/// How lists grow: s_i = ceil(growth * s_(i-1)), as a table that Python makes.
struct Growth {
  const u64* slots_end;  // pool slots of buckets 0 … i together, links included
  u64 levels;            // at least 2; further buckets are as large as the last
  u64 link_slots;        // a link has 8 bytes

  DG_FIELDS(slots_end, levels, link_slots)

  DG_FN u64 slots_through(u64 bucket) const {
    if (bucket < levels) return slots_end[bucket];
    const u64 last = slots_end[levels - 1];
    return last + (bucket - levels + 1) * (last - slots_end[levels - 2]);
  }
  DG_FN u64 slots_before(u64 bucket) const { return bucket == 0 ? 0 : slots_through(bucket - 1); }
  DG_FN u64 slots_of(u64 bucket) const { return slots_through(bucket) - slots_before(bucket); }
  DG_FN u64 link_of(u64 bucket) const { return bucket == 0 ? 0 : link_slots; }

  /// Values that buckets 0 … `bucket` hold.
  DG_FN u64 values_through(u64 bucket) const { return slots_through(bucket) - bucket * link_slots; }
  DG_FN u64 values_before(u64 bucket) const { return bucket == 0 ? 0 : values_through(bucket - 1); }

  /// The buckets that `count` values need.
  DG_FN u64 buckets_for(u64 count) const {
    if (count == 0) return 0;
    if (count > values_through(levels - 1)) {
      const u64 each = values_through(levels) - values_through(levels - 1);
      return levels + (count - values_through(levels - 1) + each - 1) / each;
    }
    u64 low = 0, high = levels - 1;
    while (low < high) {
      const u64 middle = (low + high) / 2;
      if (values_through(middle) < count)
        low = middle + 1;
      else
        high = middle;
    }
    return low + 1;
  }
};

/// What appending a run of values takes.
struct ListNeed {
  u64 slots;
  u64 records;
  u64 pieces;   // stretches of neighbouring places that the values go to
  u64 handles;  // for lists without a number of their own
};

/// A piece of values as `list_gather` and `list_scatter` take it: where its values begin in a batch,
/// and, as a handle, in the pool.
struct ListPieces {
  i64* begins;
  u64* handles;

  DG_FIELDS(begins, handles)

  DG_FN void put(u64 number, u64 begin, ListHandle handle) const {
    begins[number] = static_cast<i64>(begin);
    handles[number] = handle.bits;
  }
  DG_FN void put(u64 number, u64 begin, u64 slot) const {
    put(number, begin, ListHandle::run(slot, 0));
  }
};

/// Pieces of everything that a handle has, in order.
DG_FN u64 pieces_of(const ListRecord& content, const Growth& growth) {
  return (content.count > 0) + growth.buckets_for(content.listed);
}

/// `alone`: whether one value can stand in the entry of a new key; `settled`: whether the key's list
/// is one of those whose runs have no handles.
DG_FN ListNeed need_of(ListHandle handle, const ListRecord& content, u64 length, bool alone,
                       bool settled, const Growth& growth) {
  using Kind = ListHandle::Kind;
  if (handle.kind() == Kind::none && length == 1 && alone) return {0, 0, 1, 0};
  if (handle.kind() == Kind::none || handle.kind() == Kind::value) {
    const u64 values = length + content.count;
    return {values, values > ListHandle::longest_run, 1, 1};
  }
  const u64 before = growth.buckets_for(content.listed);
  const u64 after = growth.buckets_for(content.listed + length);
  const bool has_room = before > 0 && growth.values_through(before - 1) > content.listed;
  return {growth.slots_before(after) - growth.slots_before(before), handle.kind() == Kind::run,
          has_room + after - before, settled};
}

template <class Value>
struct BucketList {
  static constexpr u64 link_slots = 8 / sizeof(Value);

  Value* pool;
  Growth growth;

  DG_FN u64 link_at(u64 slot) const {
    if constexpr (sizeof(Value) == 8)
      return pool[slot];
    else
      return static_cast<u64>(pool[slot + 1]) << 32 | pool[slot];
  }

  DG_FN void set_link(u64 slot, u64 link) const {
    pool[slot] = static_cast<Value>(link);
    if constexpr (sizeof(Value) == 4) pool[slot + 1] = static_cast<Value>(link >> 32);
  }

  /// Makes room for `length` values of a batch, which begin there at `begin`: new buckets stand one
  /// after the other from slot `place`. Puts the pieces from number `piece` on.
  DG_FN void append(ListRecord& content, u64 length, u64 begin, u64 place, const ListPieces& pieces,
                    u64 piece) const {
    u64 bucket = growth.buckets_for(content.listed);
    u64 written = 0;
    if (bucket > 0) {
      const u64 room = growth.values_through(bucket - 1) - content.listed;
      const u64 used = content.listed - growth.values_before(bucket - 1);
      if (room > 0) pieces.put(piece++, begin, content.tail + growth.link_of(bucket - 1) + used);
      written = room < length ? room : length;
    }
    for (; written < length; ++bucket) {
      if (bucket > 0) set_link(place, content.tail);
      pieces.put(piece++, begin + written, place + growth.link_of(bucket));
      content.tail = place;
      place += growth.slots_of(bucket);
      written += growth.values_through(bucket) - growth.values_before(bucket);
    }
    content.listed += length;
  }

  /// Puts the pieces of everything that a key has, whose values begin in a batch at `begin`.
  DG_FN void put_all(const ListRecord& content, u64 begin, const ListPieces& pieces,
                     u64 piece) const {
    if (content.count > 0) pieces.put(piece++, begin, content.start);
    u64 tail = content.tail;
    for (u64 bucket = growth.buckets_for(content.listed); bucket-- > 0;) {
      pieces.put(piece + bucket, begin + content.count + growth.values_before(bucket),
                 tail + growth.link_of(bucket));
      if (bucket > 0) tail = link_at(tail);
    }
  }
};

}  // namespace dg

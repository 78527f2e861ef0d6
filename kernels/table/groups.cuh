/// The compacting hash table (Alcantara 2011, §6.3): distinct keys, each with the first row that holds
/// it, so that numbers do not depend on which thread came first; then with its number. Totals of the
/// group may follow in the same record.
///
/// One lane serves a key: most rows hold a key that is there already, and one load of 16 bytes tells.
///
/// Invariants
///  * A key stands in the first record of its walk that was free when it came, and is never removed.
///  * First rows only fall, to the first row of all. So an old view of a record (`Access::stale`, which
///    the L1 cache may answer) is wrong in one way only: it may show a free record that is taken now,
///    and the compare-and-swap tells.
///  * Launches that place keys and launches that read or number them do not overlap.
#pragma once

#include "core/bucket.cuh"
#include "core/fields.cuh"
#include "core/hash.cuh"
#include "core/slot.cuh"

namespace dg {

/// The records of a table, and how they are found.
struct GroupStorage {
  u64* records;      // of `words` words: the key, its first row or number, totals
  u64 lines;         // of 64 bytes, or of one record where that is longer; one record follows them
  u64 words;         // a power of two, at least 2
  u64 line_records;  // a power of two; divisions take longer than lookups
  u64 most_lines;    // of a walk; a key that would have to walk farther is refused
  u64 salt;          // of the hash: the seed, spread

  DG_FIELDS(records, lines, words, line_records, most_lines, salt)
};

struct GroupTable {
  static constexpr u64 kNone = ~0ull;  // no key, no row, no record

  GroupStorage at;

  struct Placed {
    u64 slot;  // kNone where the key was refused
    bool created;
  };

  struct Found {
    u64 slot;
    u64 word;  // the first row or the number; kNone where the key is absent
  };

  DG_FN u64* record(u64 slot) const { return at.records + slot * at.words; }
  DG_FN u64 aside() const { return at.lines * at.line_records; }

  /// A walk of one lane that takes turns with others: the line that comes next, which is asked for,
  /// and how many come before it.
  struct Walk {
    u64 hash;
    u64 line;
    u64 steps;
  };

  DG_FN Walk begin(u64 key) const {
    const u64 hash = hash_salted(key, at.salt), line = mulhi(hash, at.lines);
    prefetch(record(line * at.line_records));
    return {hash, line, 0};
  }

 private:
  DG_FN auto placing(u64 key, u64 row, Placed& placed) const {
    return [this, key, row, &placed](u64 slot, const Quarter& seen) {
      u64* const own = record(slot);
      u64 found = Slot<u64, u64>::key(seen, 0), first_row = Slot<u64, u64>::value(seen, 0);
      if (found == kNone) {
        take(own, found, first_row, key, row);
        if (found == kNone) {
          placed = {slot, true};
          return true;
        }
      }
      if (found != key) return false;
      lower(own + 1, first_row, row);
      placed.slot = slot;
      return true;
    };
  }

  DG_FN auto finding(u64 key, Found& result) const {
    return [key, &result](u64 slot, const Quarter& seen) {
      const u64 found = Slot<u64, u64>::key(seen, 0);
      if (found == key) result = {slot, Slot<u64, u64>::value(seen, 0)};
      return found == key || found == kNone;
    };
  }

 public:
  /// Makes sure that the key is there with a first row of at most `row`.
  DG_FN Placed place(u64 key, u64 row) const {
    if (key == kNone) return place_aside(row);
    Placed placed{kNone, false};
    walk(key, placing(key, row, placed));
    return placed;
  }

  /// The same, one line of the walk: whether another comes next.
  DG_FN bool place_step(u64 key, u64 row, Walk& walk, Placed& placed) const {
    placed = {kNone, false};
    if (key != kNone) return step(walk, placing(key, row, placed));
    placed = place_aside(row);
    return false;
  }

  /// The number of a key by one lane that works alone on the table: `next` where the key is new, and
  /// kNone where it was refused. The walk begins where `begin` says.
  DG_FN u64 number(u64 key, u64 next, const Walk& begun) const {
    u64* own = record(aside());
    if (key == kNone) {
      if (own[1] == kNone) own[1] = next;
      return own[1];
    }
    u64 line = begun.line;
    for (u64 lines = 0; lines < at.most_lines; ++lines) {
      for (u64 i = 0; i < at.line_records; ++i) {
        own = record(line * at.line_records + ((begun.hash ^ i) & (at.line_records - 1)));
        if (own[0] == key) return own[1];
        if (own[0] != kNone) continue;
        own[0] = key;
        own[1] = next;
        return next;
      }
      line = after(line);
    }
    return kNone;
  }

  /// Nobody writes meanwhile.
  DG_FN Found find(u64 key) const {
    if (key == kNone) return {aside(), record(aside())[1]};
    Found found{kNone, kNone};
    walk(key, finding(key, found));
    return found;
  }

  /// The same, one line of the walk: whether another comes next.
  DG_FN bool find_step(u64 key, Walk& walk, Found& found) const {
    if (key == kNone) {
      found = {aside(), record(aside())[1]};
      return false;
    }
    found = {kNone, kNone};
    // In equal time wherever the key stands: branches that nobody foresees would take longer.
    const u64 first = walk.line * at.line_records;
    u32 hits = 0;
    for (u64 i = 0; i < at.line_records; ++i)
      hits |= static_cast<u32>(record(first + i)[0] == key) << i;
    if (hits == 0) return step(walk, finding(key, found));
    const u64 slot = first + lowest_one(hits);
    found = {slot, record(slot)[1]};
    return false;
  }

 private:
  /// Calls `visit(slot, seen)` for the records of a key's walk, until it returns true. From line to
  /// line; within a line from a record of the key's own on, its neighbour in the same sector of 32
  /// bytes first.
  template <class Visit>
  DG_FN void walk(u64 key, const Visit& visit) const {
    const u64 hash = hash_salted(key, at.salt);
    u64 line = mulhi(hash, at.lines);
    for (u64 lines = 0; lines < at.most_lines; ++lines) {
      if (visit_line(hash, line, visit)) return;
      line = after(line);
    }
  }

  /// Takes a record for a key, if it is free; `found` and `first_row` become what stood there.
  DG_FN static void take(u64* own, u64& found, [[maybe_unused]] u64& first_row, u64 key, u64 row) {
#if DG_WIDE_SWAP
    found = first_row = kNone;
    atomic_swap_pair_if(own, found, first_row, key, row);
#else
    found = atomic_swap_if<Order::relaxed>(own, kNone, key);
    if (found == kNone) atomic_min<Order::relaxed>(own + 1, row);
#endif
  }

  /// One line of a walk: whether another comes next.
  template <class Visit>
  DG_FN bool step(Walk& walk, const Visit& visit) const {
    if (visit_line(walk.hash, walk.line, visit)) return false;
    walk.line = after(walk.line);
    prefetch(record(walk.line * at.line_records));
    return ++walk.steps < at.most_lines;
  }

  /// Whether the walk ends in this line.
  template <class Visit>
  DG_FN bool visit_line(u64 hash, u64 line, const Visit& visit) const {
    for (u64 i = 0; i < at.line_records; ++i) {
      const u64 slot = line * at.line_records + ((hash ^ i) & (at.line_records - 1));
      if (visit(slot, load_quarter<Access::stale, u64>(record(slot)))) return true;
    }
    return false;
  }

  DG_FN u64 after(u64 line) const { return line + 1 == at.lines ? 0 : line + 1; }

  DG_FN Placed place_aside(u64 row) const {
    u64* const first_row = record(aside()) + 1;
    u64 seen = atomic_load_stale(first_row);
    if (seen == kNone) seen = atomic_swap_if<Order::relaxed>(first_row, kNone, row);
    if (seen == kNone) return {aside(), true};
    lower(first_row, seen, row);
    return {aside(), false};
  }

  DG_FN static void lower(u64* first_row, u64 seen, u64 row) {
    if (seen > row && atomic_load<Order::relaxed>(first_row) > row)
      atomic_min<Order::relaxed>(first_row, row);
  }
};

}  // namespace dg

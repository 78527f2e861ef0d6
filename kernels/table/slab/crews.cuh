/// Operations on the keys that the lanes of a warp bring, a key each. Crews of eight lanes read a slab each, or
/// crews of four a half, several on the way at once for each crew; so a warp has many slabs under way and not
/// one. All crews go in step: a warp whose parts go their own ways issues every instruction once for each.
#pragma once

#include "table/slab/chains.cuh"

namespace dg {

/// `Table` is a `Slab`.
template <class Table, u32 crew_lanes>
struct SlabCrews {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Slots = typename Table::Slots;
  using Unit = typename Table::Unit;
  static constexpr u32 per_quarter = Table::per_quarter;
  static_assert(kSlabQuarters % crew_lanes == 0);

  const Table& table;

  /// How often a warp asks a pool for slabs, or for those that others give back, before a key is refused.
  static constexpr u32 kMostTries = 16;

  /// Searches; each crew has `at_once` slabs on the way.
  template <u32 at_once, class Tile>
  DG_FN Found<Value> find(Tile tile, bool asked, Key mine) const {
    Found<Value> answer{false, Value{}};
    work<Access::frozen, at_once>(
        tile, asked, mine,
        [](const Row&, const Place&, Unit, Value held) { return Try{0, 0, held}; },
        [&](const Row& row, const Place& place, const Try& tried) {
          const Value value = Table::shared_value(tile, tried.value, lowest_or_any(place.hits));
          if (row.own && row.active) answer = {place.hits != 0, value};
          return true;
        },
        false, [](char*) { return false; }, [] {});
    return answer;
  }

  template <u32 at_once, class Tile>
  DG_FN Outcome insert(Tile tile, bool asked, Key mine, Value value, Change how) const {
    Outcome outcome = Outcome::refused;
    work<Access::shared, at_once>(
        tile, asked, mine,
        [&](const Row& row, const Place& place, Unit, Value held) {
          const Value term = Table::shared_value(tile, value, row.source);
          if (!place.here || !row.active) return failed();
          if (place.hits)
            return Table::template change<false>(row.slab, place.slot, row.key, held, term, how) ==
                           Outcome::existed
                       ? Try{0, 0, held}
                       : failed();
          if constexpr (Table::has_ready_bits)
            return claimed(row, place, term, how.action != OnExisting::keep);
          else
            return swapped(row, place, Table::empty, Table::unit_of(row.key, term), held);
        },
        [&](const Row& row, const Place& place, const Try& tried) {
          const bool here = tried.was == tried.wanted;
          if (row.own && row.active) outcome = place.hits ? Outcome::existed : Outcome::created;
          return (tile.ballot(here) & row.crew) != 0;
        },
        true,
        [&](char* fresh) {
          const bool stored = Table::claim(fresh, 0, mine, value, how.action != OnExisting::keep) ==
                              Outcome::created;
          if (stored) outcome = Outcome::created;
          return stored;
        },
        [&] { outcome = Outcome::refused; });
    return outcome;
  }

  template <u32 at_once, class Tile>
  DG_FN bool erase(Tile tile, bool asked, Key mine) const {
    bool erased = false;
    work<Access::shared, at_once>(
        tile, asked, mine,
        [&](const Row& row, const Place& place, Unit from, Value held) {
          if (!place.here || !row.active) return failed();
          if (!place.hits) return Try{0, 0, held};
          return swapped(row, place, from, Table::unit_of(Mark<Key>::erased, held), held);
        },
        [&](const Row& row, const Place& place, const Try& tried) {
          if (row.own && row.active) erased = place.hits != 0;
          return (tile.ballot(tried.was == tried.wanted) & row.crew) != 0;
        },
        false, [](char*) { return false; }, [] {});
    return erased;
  }

  /// Not of pairs that have bits to tell that they are ready. Crews only read: then all lanes act at the slots that
  /// their own keys have led to, side by side.
  template <u32 at_once, class Tile>
  DG_FN Executed<Value> execute(Tile tile, bool asked, Op op, Key mine, Value value) const {
    const u32 bucket = table.bucket_of(mine);
    const bool stores = op == Op::insert || op == Op::upsert, removes = op >= Op::erase;
    const bool replaces = removes || (op == Op::upsert && Table::has_value);
    Met met{0, kNoSlab, Value{}};
    u32 link = kNoSlab;  // the slab that this lane's key has led to; none is the bucket's first
    bool open = asked, full = false, flag = false, refused = false;
    for (u32 tries = 0;; ++tries) {
      while (tile.any(open && !full)) {
        char* const slab = link == kNoSlab ? table.first_slab(bucket) : table.pool().slab(link);
        meet<at_once>(tile, open && !full, slab, mine, met);
        if (open && !full) {
          const bool hit = met.slot < Met::gap;
          const Unit from = hit ? Table::unit_of(mine, met.value) : Table::empty;
          const Unit to =
              removes ? Table::unit_of(Mark<Key>::erased, met.value) : Table::unit_of(mine, value);
          const bool acts = hit ? replaces : met.slot < Met::nothing && stores;
          // Where another was faster, the slab is read again.
          open = acts && atomic_swap_if<Order::relaxed>(Table::slot_of(slab, met.slot % Met::gap),
                                                        from, to) != from;
          flag = stores != hit;
          if (met.slot == Met::nothing) {
            full = met.next == kNoSlab;
            open = stores || !full;
            if (!full) link = met.next;
          }
        }
      }
      if (!tile.any(open)) return {flag, refused, met.value};
      grow(tile, open, bucket, link, [&](char* slab, bool own) {
        // Lanes that come second give their slabs back in a moment.
        full = slab == nullptr && tries < kMostTries;
        refused = slab == nullptr && !full;
        flag = own && Table::claim(slab, 0, mine, value, true) == Outcome::created;
        open = !flag && !refused;
      });
    }
  }

 private:
  /// A key that a crew works at: the lane `source` brought it. `end` is not told the key.
  struct Row {
    u32 source;
    u32 crew;     // bits of its lanes
    bool own;     // this lane is the source
    bool active;  // or else the crew has nothing to do
    Key key;
    char* slab;
  };

  /// What the crew's lanes see: the key, or else EMPTY slots, the first of which `here` knows.
  struct Place {
    u32 hits;
    u32 gaps;
    bool here;
    u32 slot;
  };

  /// Where a lane's key has led to in a slab: its slot, or else the first EMPTY one, or the next slab.
  struct Met {
    u32 slot;  // and `gap`, or `nothing`
    u32 next;
    Value value;
    static constexpr u32 gap = 32, nothing = 64;
  };

  /// What a swap tells. Of 8 + 8 bytes, whose swaps are no pairs, only whether it found what it expected.
  using Told = typename Chosen<Table::has_ready_bits, u32, Unit>::Type;

  /// A swap that is on its way: it did what it should where both are the same. The key had this value.
  struct Try {
    Told was;
    Told wanted;
    Value value;
  };
  DG_FN static Try failed() { return {0, 1, Value{}}; }

  DG_FN static Try swapped(const Row& row, const Place& place, Unit from, Unit to, Value held) {
    const Unit was = atomic_swap_if<Order::relaxed>(Table::slot_of(row.slab, place.slot), from, to);
    if constexpr (Table::has_ready_bits)
      return {was == from ? 0u : 1u, 0, Value{}};
    else
      return {was, from, held};
  }
  /// Of a pair that takes more than a swap, and so is not on its way any more.
  DG_FN static Try claimed(const Row& row, const Place& place, Value value, bool watched) {
    const Outcome outcome = Table::claim(row.slab, place.slot, row.key, value, watched);
    return {outcome == Outcome::created ? Told{0} : Told{1}, 0, value};
  }

  DG_FN static u32 lowest_or_any(u32 lanes) {
#if DG_GPU
    return static_cast<u32>(__ffs(static_cast<int>(lanes))) - 1;
#else
    return lanes ? lowest_one(lanes) : 0;
#endif
  }

  /// Whether word `index` of a slab's last quarter is a slot.
  DG_FN static constexpr bool is_slot(u32 index) {
    return kLastPart * per_quarter + index < Table::per_slab;
  }

  template <class Tile>
  DG_FN static Place look(Tile tile, u32 crew, u32 part, Key key, const Quarter& seen) {
    bool hit = false, gap = false;
    u32 hit_index = 0, gap_index = 0;
    const bool last = part == kLastPart;
    DG_UNROLL
    for (u32 i = per_quarter; i-- > 0;) {
      const Key found = Slots::key(seen, i);
      // The words behind the slots are all ones, or in sets, may look like a key.
      const bool may_hit = is_slot(i) || Table::has_value || !last;
      const bool may_gap = is_slot(i) || !last;
      if (found == key && may_hit) hit_index = i;
      hit = hit || (found == key && may_hit);
      if (found == Mark<Key>::empty && may_gap) gap_index = i;
      gap = gap || (found == Mark<Key>::empty && may_gap);
    }
    const u32 hits = tile.ballot(hit) & crew, gaps = tile.ballot(gap) & crew;
    const u32 lanes = hits ? hits : gaps;
    const bool here = (hits ? hit : gap) && (lanes & ones_below(tile.lane())) == 0;
    return {hits, gaps, here, part * per_quarter + (hits ? hit_index : gap_index)};
  }

  /// What the slot holds that was found, as one word and as a value.
  DG_FN static Unit unit_at(const Quarter& seen, u32 slot, Key key) {
    return Table::unit_of(key, value_at(seen, slot));
  }
  DG_FN static Value value_at(const Quarter& seen, u32 slot) {
    return Table::value_at(seen, slot % per_quarter);
  }

  /// Reads the slabs of lanes that ask, each by the lane's crew, for the lanes' keys.
  template <u32 at_once, class Tile>
  DG_FN void meet(Tile tile, bool asks, char* slab, Key mine, Met& met) const {
    static_assert(crew_lanes == kSlabQuarters);
    const u32 member = tile.lane() % crew_lanes, last = tile.lane() | kLastPart;
    const u32 crew = ((1u << crew_lanes) - 1) << (tile.lane() - member);
    u32 queue = tile.ballot(asks) & crew;
    while (tile.any(queue != 0)) {
      u32 source[at_once];
      bool own[at_once];
      Quarter seen[at_once];
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        source[i] = queue ? lowest_one(queue) : tile.lane();
        own[i] = queue != 0 && tile.lane() == source[i];
        queue &= queue - 1;
        const u64 from = tile.shuffle(reinterpret_cast<u64>(slab), source[i]);
        seen[i] = load_quarter<Access::shared, Unit>(reinterpret_cast<char*>(from) +
                                                     member * kQuarterBytes);
      }
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        const Place place = look(tile, crew, member, tile.shuffle(mine, source[i]), seen[i]);
        const u32 from = lowest_or_any(place.hits ? place.hits : place.gaps);
        const u32 slot = tile.shuffle(place.slot, from);
        const Value held = Table::shared_value(tile, value_at(seen[i], place.slot), from);
        const u32 next = tile.shuffle(seen[i].word[3], last);
        if (own[i])
          met = {place.hits ? slot : place.gaps ? Met::gap + slot : Met::nothing, next, held};
      }
    }
  }

  /// Serves the lanes' keys. All lanes together call `begin(row, place, unit, value)`, which gives the try of
  /// the lane that is `here`, and `end(row, place, try)`, which tells whether the crew's key is settled. A key
  /// that `grows` may make its chain longer: its lane calls `claim(slab)` of a new slab, whose first slot is
  /// certainly the first EMPTY one if it is EMPTY still, or `dry()` where there is no slab.
  template <Access access, u32 at_once, class Tile, class Begin, class End, class Claim, class Dry>
  DG_FN void work(Tile tile, bool asked, Key mine, const Begin& begin, const End& end, bool grows,
                  const Claim& claim, const Dry& dry) const {
    static_assert(Tile::size % crew_lanes == 0 && crew_lanes % at_once == 0);
    const u32 member = tile.lane() % crew_lanes, base = tile.lane() - member;
    const u32 crew = ((1u << crew_lanes) - 1) << base;
    const u32 bucket = table.bucket_of(mine), asks = tile.ballot(asked);
    u32 link = kNoSlab;  // the slab that this lane's key has led to; none is the bucket's first
    u32 half = 0;        // of it
    bool open = false, full = false;
    // Whether a key is to be looked for elsewhere, or again, is noted by the lane that brought it.
    const auto finish = [&](const Row& row, u32 first, const Place& place, u32 word,
                            const Try& tried) {
      const bool met = (place.hits | place.gaps) != 0;
      const bool settled = end(row, place, tried) && met;
      const u32 next = tile.shuffle(word, base + crew_lanes - 1);
      if (!row.own || !row.active) return;
      open = !settled;
      full = false;
      if (met) return;
      half = first + crew_lanes;
      if (half < kSlabQuarters) return;
      half = 0;
      if (next != kNoSlab)
        link = next;
      else
        open = full = grows;
    };
    DG_ROLL
    for (u32 first = 0; first < crew_lanes; first += at_once) {
      u32 buckets[at_once];
      Quarter seen[at_once];
      Place places[at_once];
      Try tries[at_once];
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        buckets[i] = tile.shuffle(bucket, base + first + i);
        seen[i] = load_quarter<access, Unit>(table.first_slab(buckets[i]) + member * kQuarterBytes);
      }
      const auto row = [&](u32 i, Key key) {
        const u32 source = base + first + i;
        return Row{source,
                   crew,
                   member == first + i,
                   (asks >> source & 1u) != 0,
                   key,
                   table.first_slab(buckets[i])};
      };
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) {
        const Row one = row(i, tile.shuffle(mine, base + first + i));
        places[i] = look(tile, crew, member, one.key, seen[i]);
        tries[i] = begin(one, places[i], unit_at(seen[i], places[i].slot, one.key),
                         value_at(seen[i], places[i].slot));
      }
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i)
        finish(row(i, Key{}), 0, places[i], seen[i].word[3], tries[i]);
    }
    for (u32 tries = 0;; ++tries) {
      while (tile.any(open && !full)) {
        const u32 queue = tile.ballot(open && !full) & crew;
        const u32 source = queue ? lowest_one(queue) : base;
        const u32 to = tile.shuffle(link, source), from = tile.shuffle(bucket, source);
        const u32 first = crew_lanes < kSlabQuarters ? tile.shuffle(half, source) : 0;
        const Row row{source,
                      crew,
                      tile.lane() == source,
                      queue != 0,
                      tile.shuffle(mine, source),
                      to == kNoSlab ? table.first_slab(from) : table.pool().slab(to)};
        const Quarter seen =
            load_quarter<access, Unit>(row.slab + (first + member) * kQuarterBytes);
        const Place place = look(tile, crew, first + member, row.key, seen);
        const Value value = value_at(seen, place.slot);
        const Try tried = begin(row, place, unit_at(seen, place.slot, row.key), value);
        finish(row, first, place, seen.word[3], tried);
      }
      if constexpr (access == Access::frozen) break;
      if (!tile.any(open && full)) break;
      grow(tile, open && full, bucket, link, [&](char* slab, bool own) {
        // Lanes that come second give their slabs back in a moment.
        const bool again = slab == nullptr && tries < kMostTries;
        half = 0;
        full = again;
        if (slab == nullptr && !again) dry();
        open = again || (slab != nullptr && !(own && claim(slab)));
      });
    }
  }

  /// Links a new slab behind the last one of each chain that has to grow, all at the same time; `link` becomes
  /// what stands behind that by now. `then(slab, own)` by the lanes that ask; null where there is none.
  template <class Tile, class Then>
  DG_FN void grow(Tile tile, bool asked, u32 bucket, u32& link, const Then& then) const {
    const SlabAlloc pool = table.pool();
    ResidentBlock<Tile::size> resident;
    const u32 who = tile.shuffle(bucket, lowest_one(tile.ballot(asked)));
    const u32 taken = pool.allocate_each(tile, asked, who, resident);
    if (!asked) return;
    u32* const next = Table::next_of(link == kNoSlab ? table.first_slab(bucket) : pool.slab(link));
    const u32 was = taken == kNoSlab ? atomic_load<Order::relaxed>(next)
                                     : atomic_swap_if<Order::relaxed>(next, kNoSlab, taken);
    const bool own = taken != kNoSlab && was == kNoSlab;
    if (taken != kNoSlab && !own) pool.release(taken);
    const u32 behind = own ? taken : was;
    if (behind != kNoSlab) link = behind;
    then(behind == kNoSlab ? nullptr : pool.slab(behind), own);
  }
};

}  // namespace dg

/// Operations on the keys that the lanes of a warp bring, a key each. Crews of eight lanes read a slab each, and
/// several slabs on the way at once for each crew, so that a warp has sixteen under way and not one; and
/// all crews go in step, since a warp whose parts go their own ways issues every instruction once for each.
#pragma once

#include "table/slab/chains.cuh"

namespace dg {

/// `Table` is a `Slab`.
template <class Table>
struct SlabCrews {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Unit = typename Table::Unit;
  static constexpr u32 crew_lanes = kSlabQuarters;
  static constexpr u32 per_quarter = Table::per_quarter;

  const Table& table;

  /// Searches on the way at once, by each crew.
  template <u32 at_once, class Tile>
  DG_FN Found<Value> find(Tile tile, bool asked, Key mine) const {
    Found<Value> answer{false, Value{}};
    work<Access::frozen, at_once>(
        tile, asked, mine, false,
        [&](const Row& row, const Place& place, const Quarter& seen, bool) {
          const Value value = Table::shared_value(tile, held(seen, place), place.lane);
          if (tile.lane() == row.source && row.active) answer = {place.found, value};
          return Try{0, 0};
        },
        [](const Row&, const Place&, bool, bool) {}, [](u32) {});
    return answer;
  }

  template <u32 at_once, class Tile>
  DG_FN Outcome insert(Tile tile, bool asked, Key mine, Value value, Change how) const {
    Outcome outcome = Outcome::refused;
    work<Access::shared, at_once>(
        tile, asked, mine, true,
        [&](const Row& row, const Place& place, const Quarter& seen, bool here) {
          const Value term = Table::shared_value(tile, value, row.source);
          if (!here) return Try{0, 1};
          if (!place.found)
            return Try{atomic_swap_if<Order::relaxed>(Table::slot_of(row.slab, place.slot),
                                                      Table::empty, Table::unit_of(row.key, term)),
                       Table::empty};
          const Outcome changed = Table::template change<false>(row.slab, place.slot, row.key,
                                                                held(seen, place), term, how);
          return Try{0, static_cast<Unit>(changed == Outcome::existed ? 0 : 1)};
        },
        [&](const Row& row, const Place& place, bool here, bool settled) {
          const Value term = Table::shared_value(tile, value, row.source);
          if (here && !place.found)
            Table::publish(row.slab, place.slot, term, how.action != OnExisting::keep);
          if (tile.lane() == row.source && settled)
            outcome = place.found ? Outcome::existed : Outcome::created;
        },
        [&](u32 source) {
          const Outcome got = table.insert(tile, tile.shuffle(mine, source),
                                           Table::shared_value(tile, value, source), how);
          if (tile.lane() == source) outcome = got;
        });
    return outcome;
  }

  template <u32 at_once, class Tile>
  DG_FN Executed<Value> execute(Tile tile, bool asked, Op op, Key mine, Value value) const {
    Executed<Value> answer{false, false, Value{}};
    const auto stores = [](Op what) { return what == Op::insert || what == Op::upsert; };
    const auto op_of = [&](u32 source) {
      return static_cast<Op>(tile.shuffle(static_cast<u32>(op), source));
    };
    work<Access::shared, at_once, Table::has_ready_bits>(
        tile, asked, mine, stores(op),
        [&](const Row& row, const Place& place, const Quarter& seen, bool here) {
          const Value term = Table::shared_value(tile, value, row.source);
          const Value has = held(seen, place);
          const Op what = op_of(row.source);
          const Value found = Table::shared_value(tile, has, place.lane);
          if (tile.lane() == row.source && row.active) answer.value = found;
          if (!here) return Try{0, 1};
          const bool removes = what == Op::erase || what == Op::erase_all;
          const bool swaps =
              place.found ? removes || (what == Op::upsert && Table::has_value) : stores(what);
          if (!swaps) return Try{0, 0};
          const Unit from = place.found ? Table::unit_of(row.key, has) : Table::empty;
          const Unit to =
              removes ? Table::unit_of(Mark<Key>::erased, has) : Table::unit_of(row.key, term);
          return Try{atomic_swap_if<Order::relaxed>(Table::slot_of(row.slab, place.slot), from, to),
                     from};
        },
        [&](const Row& row, const Place& place, bool here, bool settled) {
          const Value term = Table::shared_value(tile, value, row.source);
          const bool stored = stores(op_of(row.source));
          if (here && stored && !place.found) Table::publish(row.slab, place.slot, term, true);
          if (tile.lane() == row.source && settled) answer.flag = stored != place.found;
        },
        [&](u32 source) {
          const Executed<Value> got = table.execute(tile, op_of(source), tile.shuffle(mine, source),
                                                    Table::shared_value(tile, value, source));
          if (tile.lane() == source) answer = got;
        });
    return answer;
  }

 private:
  /// A key that a crew works at: one of its lanes brought it.
  struct Row {
    u32 source;
    bool active;  // or else the crew has nothing to do
    Key key;
    char* slab;
  };

  /// What a slab shows: the key, or else the first EMPTY slot, or neither.
  struct Place {
    bool found;
    bool ends;  // neither, and there is no other slab
    u32 lanes;  // of the crew, where the key is, or where there are EMPTY slots
    u32 lane;   // of the warp: it knows the slot
    u32 slot;
    u32 index;  // of the slot in its quarter
    u32 next;
  };

  /// A swap that is on its way: it did what it should where both are the same.
  struct Try {
    Unit was;
    Unit wanted;
  };

  DG_FN static Value held(const Quarter& seen, const Place& place) {
    return Table::value_at(seen, place.index);
  }

  template <class Tile>
  DG_FN static u32 crew(Tile tile, bool claim) {
    return tile.ballot(claim) >> first_lane(tile) & ((1u << crew_lanes) - 1);
  }
  template <class Tile>
  DG_FN static u32 first_lane(Tile tile) {
    return tile.lane() & ~(crew_lanes - 1);
  }

  template <class Tile>
  DG_FN static Place look(Tile tile, Key key, Quarter& seen) {
    const u32 next = tile.shuffle(seen.word[3], first_lane(tile) + kLastPart);
    if (tile.lane() % crew_lanes == kLastPart) Table::hide_words(seen);
    const auto sight = Table::scan(seen, key);
    const u32 hits = crew(tile, sight.hit < per_quarter);
    const u32 gaps = crew(tile, sight.gap < per_quarter);
    const u32 lanes = hits ? hits : gaps, index = hits ? sight.hit : sight.gap;
    const u32 lane = first_lane(tile) + (lanes ? lowest_one(lanes) : 0);
    return {hits != 0,
            lanes == 0 && next == kNoSlab,
            lanes,
            lane,
            tile.lane() % crew_lanes * per_quarter + index,
            index,
            next};
  }

  /// Serves the lanes' keys; a key that `grows` may make its chain longer. All lanes together call
  /// `begin(row, place, quarter, here)`, which gives the try of the one lane that is `here`, then
  /// `end(row, place, here, settled)`, where the try of the lane that is `here` did what it should, and
  /// `alone(source)` where a chain has to grow, and where the key was found and there are `doubts`.
  template <Access access, u32 at_once, bool doubts = false, class Tile, class Begin, class End,
            class Alone>
  DG_FN void work(Tile tile, bool asked, Key mine, bool grows, const Begin& begin, const End& end,
                  const Alone& alone) const {
    static_assert(Tile::size % crew_lanes == 0 && crew_lanes % at_once == 0);
    const u32 bucket = asked ? table.bucket_of(mine) : 0;
    u32 link = kNoSlab;  // the slab that this lane's key has led to; none is the bucket's first
    bool open = asked, hard = false;
    const auto row_of = [&](u32 source, bool active, char* slab) {
      return Row{source, active, tile.shuffle(mine, source), slab};
    };
    const auto read = [&](const char* slab) {
      return load_quarter<access, Unit>(slab + tile.lane() % crew_lanes * kQuarterBytes);
    };
    const auto start = [&](const Row& row, Quarter& seen, Place& place) {
      place = look(tile, row.key, seen);
      const bool doubtful = doubts && place.found;
      if (tile.lane() == row.source && row.active) {
        if (place.lanes == 0) link = place.next;
        hard = doubtful || (place.ends && grows);
      }
      return begin(row, place, seen,
                   row.active && !doubtful && place.lanes && tile.lane() == place.lane);
    };
    const auto finish = [&](const Row& row, const Place& place, const Try& tried) {
      const bool here = tried.was == tried.wanted;
      bool settled = place.lanes != 0;
      if constexpr (access != Access::frozen) settled = crew(tile, here) != 0;
      end(row, place, here, settled);
      if (tile.lane() == row.source && row.active && (settled || (place.ends && !grows)))
        open = false;
    };
    for (u32 first = 0; first < crew_lanes; first += at_once) {
      Quarter seen[at_once];
      Place places[at_once];
      Try tries[at_once];
      const auto row = [&](u32 i) {
        const u32 source = first_lane(tile) + first + i;
        return row_of(source, tile.shuffle(u32{asked}, source) != 0,
                      table.first_slab(tile.shuffle(bucket, source)));
      };
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) seen[i] = read(row(i).slab);
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) tries[i] = start(row(i), seen[i], places[i]);
      DG_UNROLL
      for (u32 i = 0; i < at_once; ++i) finish(row(i), places[i], tries[i]);
    }
    while (tile.any(open && !hard)) {
      const u32 queue = crew(tile, open && !hard);
      const u32 source = first_lane(tile) + (queue ? lowest_one(queue) : 0);
      const u32 to = tile.shuffle(link, source), from = tile.shuffle(bucket, source);
      const Row row = row_of(source, queue != 0,
                             to == kNoSlab ? table.first_slab(from) : table.pool().slab(to));
      Quarter seen = read(row.slab);
      Place place;
      const Try tried = start(row, seen, place);
      finish(row, place, tried);
    }
    serve_lanes(tile, open && hard, alone);
  }
};

}  // namespace dg

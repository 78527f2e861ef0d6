/// Rows of a batch against an open-addressing table, one by each lane of a wide tile.
///
/// Each lane walks for a key of its own, which it hashes once; four lanes read a bucket, and tiles are
/// warps (table/rows/lines.cuh).
#pragma once

#include "table/open.cuh"
#include "table/rows/lines.cuh"

namespace dg {

/// 48 MiB.
inline constexpr u64 kSettledBuckets = 3 << 18;

template <class KeyType, class ValueType>
struct OpenRows : OpenTable<KeyType, ValueType> {
  using Table = OpenTable<KeyType, ValueType>;
  using Table::at;
  using Table::erase_aside;
  using Table::erase_at;
  using Table::find_aside;
  using Table::hash_of;
  using Table::insert_by;
  using Table::overflow;
  using Table::pass_all;
  using Table::reserved;
  using typename Table::End;
  using Goal = typename Table::Goal;
  using Key = typename Table::Key;
  using typename Table::Placed;
  using typename Table::Removed;
  using typename Table::Slots;
  using typename Table::Stop;
  using typename Table::Value;

  /// Looks keys up: `ask(row, key)` gives the key of a row and says whether there is one, and
  /// `answer(row, stop)` is told what there is: with `Goal::key` what `value_of` needs, with
  /// `Goal::place` the slot alone.
  template <Goal goal, class Lanes, class Rows, class Ask, class Answer>
  DG_FN void find_rows(Lanes tile, Rows& rows, const Ask& ask, const Answer& answer) const {
    // Values that stand elsewhere want the room as much.
    constexpr bool alone = !Slots::has_value || Slots::paired;
    // Two loops, since one that chooses at each load takes more registers.
    if (alone && at.buckets <= kStayingLines)
      find_rows_by<goal, Access::staying>(tile, rows, ask, answer);
    else
      find_rows_by<goal, Access::leaving>(tile, rows, ask, answer);
  }

  /// Whether the buckets are too many for the L2 cache, and few enough that most of them stay there.
  DG_FN bool presses() const { return at.buckets > kSettledBuckets && at.buckets <= kStayingLines; }

  /// Stores pairs: `ask(row, key, value)` gives the pair of a row and says whether there is one,
  /// `tell(row, placed)` is told what became of it; `together`: by all lanes at once that have to.
  template <Access access, bool together = false, class Lanes, class Rows, class Ask, class Tell>
  DG_FN void insert_rows(Lanes tile, Rows& rows, u64 limit, const Ask& ask,
                         const Tell& tell) const {
    Sought mine = seek(Key{});
    Value value{};
    const auto step = [&](u64 row, bool asked, const auto& told) {
      const Stop stop = look<Goal::place, access>(tile, mine);
      if (!asked) return false;
      if (stop.end == End::nowhere && !reserved(mine.key) && advance(mine)) return true;
      if (stop.end == End::empty) pass_all(Tile<1>{}, mine.key, mine.probe, mine.probe.visited);
      bool tried = false;
      const Placed placed = insert_by(
          Tile<1>{}, mine.key, value, limit,
          [&] {
            // Another key took the place: the bucket is read again.
            if (tried) return Stop{End::later, 0, 0, Value{}};
            tried = true;
            return stop;
          },
          [&](const Stop&) { return mine.probe.visited; });
      if (placed.outcome == Outcome::later) return true;
      told(row, placed);
      return false;
    };
    rows.serve(
        tile,
        [&](u64 row) {
          Key key{};
          const bool there = ask(row, key, value);
          mine = seek(key);
          return there;
        },
        [&](u64 row, bool asked) {
          if constexpr (together) {
            Placed done{Outcome::later, 0, 0};
            const bool more = step(row, asked, [&](u64, const Placed& placed) { done = placed; });
            // Lanes that end one by one would go on one by one.
            tile.sync();
            if (done.outcome != Outcome::later) tell(row, done);
            return more;
          } else {
            return step(row, asked, tell);
          }
        });
  }

  /// Removes keys; `tell(row, removed)` is told what became of each.
  template <class Lanes, class Rows, class Tell>
  DG_FN void erase_rows(Lanes tile, Rows& rows, const Key* keys, const Tell& tell) const {
    seek_rows(
        tile, rows,
        [&](u64 row, Key& key) {
          key = keys[row];
          return true;
        },
        [&](u64 row, Key key, const Stop& stop) {
          Removed removed{false, false, false};
          if (reserved(key))
            removed = erase_aside(key);
          else if (stop.end == End::key)
            removed = erase_at(stop.slot, key);
          tell(row, removed);
        });
  }

  /// Changes the values of keys that are stored: `ask(row, key)` gives the key of a row and says whether
  /// there is one, `term(row)` what it brings.
  template <class Lanes, class Rows, class Ask, class Term>
  DG_FN void change_rows(Lanes tile, Rows& rows, Change change, const Ask& ask,
                         const Term& term) const {
    seek_rows<true>(tile, rows, ask, [&](u64 row, Key key, const Stop& stop) {
      if (reserved(key))
        this->change(Table::side(Table::side_index(key)), term(row), change);
      else if (stop.end == End::key)
        this->change(stop.slot, term(row), change);
    });
  }

 private:
  /// What a lane looks for, and the bucket where it does.
  struct Sought {
    Key key;
    SegmentedProbe<1> probe;
    u64 bucket;
  };

  /// Looks for slots that other lanes change meanwhile; what was searched for a reserved key is one of the
  /// marks. `few`: most rows are not asked for.
  template <bool few = false, class Lanes, class Rows, class Ask, class Answer>
  DG_FN void seek_rows(Lanes tile, Rows& rows, const Ask& ask, const Answer& answer) const {
    Sought mine = seek(Key{});
    rows.serve(
        tile,
        [&](u64 row) {
          Key key{};
          const bool there = ask(row, key);
          mine = seek(key);
          return there;
        },
        [&](u64 row, bool asked) {
          if constexpr (few) {
            if (!tile.any(asked)) return false;
          }
          const Stop stop = look<Goal::place, Access::shared>(tile, mine);
          const bool more = asked && goes_on<Access::shared>(stop, mine, true);
          if (asked && !more) answer(row, mine.key, stop);
          return more;
        });
  }

  template <Goal goal, Access access, class Lanes, class Rows, class Ask, class Answer>
  DG_FN void find_rows_by(Lanes tile, Rows& rows, const Ask& ask, const Answer& answer) const {
    // A tile that only meets stored keys looks into their second buckets at once: they were passed on.
    bool cautious = true;
    Sought mine = seek(Key{});
    rows.serve(
        tile,
        [&](u64 row) {
          Key key{};
          const bool there = ask(row, key);
          mine = seek(key);
          return there;
        },
        [&](u64 row, bool asked) {
          const Stop stop = look<goal, access>(tile, mine);
          const bool asks = cautious || mine.probe.visited > 0;
          const bool more = asked && goes_on<Access::frozen>(stop, mine, asks);
          cautious = tile.any(asked && !more && stop.end != End::key);
          // What was searched for a reserved key was one of the marks.
          if (asked && !more) answer(row, reserved(mine.key) ? find_aside(mine.key) : stop);
          return more;
        });
  }

  DG_FN Sought seek(Key key) const {
    const SegmentedProbe<1> probe(at.buckets, at.segment_shift, hash_of(key));
    return Sought{key, probe, probe.first};
  }

  /// Whether there is another bucket.
  DG_FN bool advance(Sought& mine) const {
    mine.probe.next();
    mine.bucket = mine.probe.bucket(0, [&] { return hash_of(mine.key); });
    return !mine.probe.ended();
  }

  /// Whether a search goes on from where `stop` was seen, if it asks the filter by what that says; then
  /// the bucket is the next one.
  template <Access access>
  DG_FN bool goes_on(const Stop& stop, Sought& mine, bool asks) const {
    return stop.end == End::nowhere && !reserved(mine.key) &&
           (!asks || overflow().template passed<access>(mine.bucket, mine.probe.low)) &&
           advance(mine);
  }

  /// Where each lane's own key stands in its own bucket, or where there is a place for it.
  template <Goal goal, Access access, class Lanes>
  DG_FN Stop look(Lanes tile, const Sought& mine) const {
    const auto seen = Lines<Slots>::template look_by<goal == Goal::place>(
        tile, mine.key, mine.bucket,
        [&](u64 line, u32 part) { return this->template load<access>(line, part); });
    return Stop{seen.hit   ? End::key
                : seen.gap ? End::empty
                           : End::nowhere,
                0, seen.slot, seen.value};
  }
};

}  // namespace dg

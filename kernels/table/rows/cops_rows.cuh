/// Rows of a batch against a table of windows, one by each lane of a wide tile, four lanes to a line
/// (table/rows/lines.cuh): what a tile of four does for its rows one after another, for eight at a time.
#pragma once

#include "probe/cops.cuh"
#include "table/rows/lines.cuh"
#include "table/table_state.cuh"

namespace dg {

/// `Table` has `at`, `slots()`, `hash_of()` and the numbers of a window.
template <class Table>
struct CopsRows {
  using Slots = typename Table::Slots;
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  static constexpr u32 window_lines = Table::window_quarters / kQuarters;

  Table table;

  /// Looks keys up: `ask(row, key)` gives the key of a row and says whether there is one, and `answer(row,
  /// found)` is told what there is.
  template <class Lanes, class Rows, class Ask, class Answer>
  DG_FN void find(Lanes tile, Rows& rows, const Ask& ask, const Answer& answer) const {
    // Values that stand elsewhere want the room as much.
    constexpr bool alone = !Slots::has_value || Slots::paired;
    // Two loops, since one that chooses at each load takes more registers.
    if (alone && table.at.windows * window_lines <= kStayingLines)
      find_by<Access::staying>(tile, rows, ask, answer);
    else
      find_by<Access::leaving>(tile, rows, ask, answer);
  }

  /// Stores pairs, or changes the values of keys that are stored: `ask(row, key, value)` gives the pair of a
  /// row and says whether there is one, `tell(row, outcome)` is told what became of it.
  template <class Lanes, class Rows, class Ask, class Tell>
  DG_FN void insert(Lanes tile, Rows& rows, Change change, const Ask& ask, const Tell& tell) const {
    Sought mine{};
    Value value{};
    rows.serve(
        tile,
        [&](u64 row) {
          const bool there = ask(row, mine.key, value);
          seek(mine);
          return there;
        },
        [&](u64 row, bool asked) {
          const auto seen = Lines<Slots>::template look<true, Access::shared>(tile, table.at.keys,
                                                                              mine.key, mine.line);
          if (!asked) return false;
          Outcome outcome = Outcome::existed;
          if (seen.hit) {
            table.slots().change(seen.slot, mine.key, value, change);
          } else if (seen.gap) {
            outcome = table.slots().publish_or_change(seen.slot, mine.key, value, change);
            // Another key took the slot: the line is read again.
            if (outcome == Outcome::refused) return true;
          } else {
            if (advance(mine)) return true;
            outcome = Outcome::refused;
          }
          tell(row, outcome);
          return false;
        });
  }

 private:
  /// What a lane looks for, the line where it does, and how many lines come before that.
  struct Sought {
    Key key;
    u64 line;
    u32 steps;
  };

  DG_FN u64 line_of(u64 hash, const CopsProbe& probe) const {
    return probe.window * window_lines +
           CopsProbe::first_quarter(hash, Table::window_quarters) / kQuarters;
  }

  DG_FN void seek(Sought& mine) const {
    const u64 hash = table.hash_of(mine.key);
    mine.line = line_of(hash, CopsProbe(table.at.windows, hash));
    mine.steps = 0;
  }

  /// Whether there is another line.
  DG_FN bool advance(Sought& mine) const {
    if (++mine.steps % window_lines != 0) {
      const u64 window = mine.line & ~u64{window_lines - 1};
      mine.line = window | ((mine.line + 1) & (window_lines - 1));
      return true;
    }
    const u64 hash = table.hash_of(mine.key);
    CopsProbe probe(table.at.windows, hash);
    probe.window = mine.line / window_lines;
    probe.next(table.at.windows, hash);
    mine.line = line_of(hash, probe);
    return mine.steps / window_lines < table.at.windows;
  }

  template <Access access, class Lanes, class Rows, class Ask, class Answer>
  DG_FN void find_by(Lanes tile, Rows& rows, const Ask& ask, const Answer& answer) const {
    Sought mine{};
    rows.serve(
        tile,
        [&](u64 row) {
          const bool there = ask(row, mine.key);
          seek(mine);
          return there;
        },
        [&](u64 row, bool asked) {
          const auto seen =
              Lines<Slots>::template look<false, access>(tile, table.at.keys, mine.key, mine.line);
          if (!asked) return false;
          if (!seen.hit && !seen.gap && advance(mine)) return true;
          Found<Value> found{seen.hit, seen.value};
          if constexpr (Slots::has_value && !Slots::paired)
            if (seen.hit) found.value = table.slots().value_in(seen.slot);
          answer(row, found);
          return false;
        });
  }
};

}  // namespace dg

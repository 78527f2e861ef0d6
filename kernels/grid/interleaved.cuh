/// Rows whose walks one lane takes in turns, one step of each at a time, as a CPU does: while one
/// waits for memory, the others go on (Kocberber et al. 2015, "Asynchronous Memory Access Chaining", in
/// rounds). In a table of 71 MB at load 0.9 a lookup takes a core 14 ns and not 50, an insert 25 and not 53.
#pragma once

#include "grid/for_each.cuh"

namespace dg {

/// Whether instances of this width take turns. The tiles of a GPU wait side by side.
template <int Width>
inline constexpr bool kInTurns = !DG_GPU && Width == 1;

#if !DG_GPU

/// Walks that begin together, half of what is on the way at most. 32 to 128 are equally fast.
inline constexpr u32 kTurnRows = 64;

/// Rows [first, last) by one lane. `begin(row)` gives a row's walk and asks for the line that the walk
/// needs first; `step(row, walk)` takes it on by one line and says whether there is another, for which
/// it has asked.
template <class Begin, class Step>
void take_turns(u64 first, u64 last, const Begin& begin, const Step& step) {
  struct Open {
    u64 row;
    decltype(begin(u64{})) walk;
  };
  // Walks have no empty state.
  union Room {
    Open open[2 * kTurnRows];
    Room() {}
  };
  Room room;
  u32 count = 0;
  while (true) {
    const u64 most = count < kTurnRows ? kTurnRows : 2 * kTurnRows - count;
    for (const u64 end = last - first < most ? last : first + most; first < end; ++first)
      room.open[count++] = {first, begin(first)};
    if (count == 0) break;
    u32 kept = 0;
    for (u32 i = 0; i < count; ++i) {
      Open& open = room.open[i];
      if (step(open.row, open.walk)) room.open[kept++] = open;
    }
    count = kept;
  }
}

/// All rows; `step` gets a tally, too.
template <u32 counters, class Begin, class Step>
void for_each_in_turns(u64 rows, const Totals<counters>& totals, const Begin& begin,
                       const Step& step) {
  const auto piece = [&](u64 first, u64 last) {
    Tally<counters> tally;
    take_turns(first, last, begin, [&](u64 row, auto& walk) { return step(row, walk, tally); });
    add_to_totals(tally, totals);
  };
#ifdef DG_LOCKSTEP
  constexpr u64 piece_rows = 16;
  lockstep::for_each_tile<1>((rows + piece_rows - 1) / piece_rows, [&](auto, u64 number) {
    const u64 first = number * piece_rows;
    piece(first, rows - first < piece_rows ? rows : first + piece_rows);
  });
#else
  for_each_piece(rows, 1, piece);
#endif
}

#endif

}  // namespace dg

/// Letters into runs of k-mers with one minimizer, and the taxa of these into calls of reads. Rows are segments of
/// letters, or reads.
#pragma once

#include "batch/rows.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "kmer/minimizers.cuh"
#include "kmer/taxon_votes.cuh"

namespace dg {

/// Neighbouring k-mers of one record that have one minimizer.
struct MinimizerRuns {
  u64* minimizers;
  u32* starts;  // of the first k-mer
  u16* kmers;
  u32* nodes;  // or null; the node of its record

  DG_FIELDS(minimizers, starts, kmers, nodes)

  DG_FN void put(u64 to, const MinimizerRuns& from, u64 at) const {
    minimizers[to] = from.minimizers[at];
    starts[to] = from.starts[at];
    kmers[to] = from.kmers[at];
    if (nodes) nodes[to] = from.nodes[at];
  }
};

struct MinimizerArgs {
  MinimizerRule rule;
  ReadLetters letters;
  MinimizerRuns runs;  // of each segment, from `room` times its number on
  const i64* offsets;  // of each record, and the end of the last one, which is `rows`
  const u32* nodes;    // of each record, or null; a record of none has no runs
  i64* counts;         // of each segment: how many runs it has
  u64* memory;         // `kMostLmers` words of each segment; not for `kUsualLmers`
  u64 memory_step;     // from one word of a segment to its next: 1, or `n`
  u64 records;
  u64 rows;          // letters
  u64 segment_rows;  // letters in which a segment's k-mers start, at most 65,535; by a tile, as many
                     // as its `kLettersOfLane` for each lane have whole k-mers
  u64 room;          // for so many runs of a segment; what is more is counted alone
  u64 n;             // segments

  DG_FIELDS(rule, letters, runs, offsets, nodes, counts, memory, memory_step, records, rows,
            segment_rows, room, n)
};

/// Of one segment, by one lane.
template <class Window>
DG_FN void find_minimizers(const MinimizerArgs& args, u64 segment, const Window& window) {
  const u64 first = segment * args.segment_rows, room = segment * args.room;
  u64 count = 0, held = 0;
  u32 kmers = 0, start = 0, node = 0;
  const auto put = [&] {
    if (kmers == 0 || (args.nodes && node == 0)) return;
    if (count < args.room) {
      args.runs.minimizers[room + count] = held;
      args.runs.starts[room + count] = start;
      args.runs.kmers[room + count] = static_cast<u16>(kmers);
      if (args.nodes) args.runs.nodes[room + count] = node;
    }
    ++count;
  };
  for_each_minimizer(
      args.rule, window, args.letters, args.offsets, row_at(args.offsets, args.records, first, 0),
      first, end_of_rows(args, segment), [&](u64 from, u64 minimizer, u64 record, bool is_first) {
        if (is_first || minimizer != held) {
          put();
          held = minimizer;
          start = static_cast<u32>(from);
          if (is_first && args.nodes) node = args.nodes[record];
          kmers = 0;
        }
        ++kmers;
      });
  put();
  args.counts[segment] = static_cast<i64>(count);
}

/// By the lanes of a tile, of k-mers with `kUsualLmers` l-mers.
template <class Tile>
DG_FN void find_together(Tile tile, const MinimizerArgs& args, u64 segment) {
  constexpr u32 places = kLettersOfLane * Tile::size;
  const u64 first = segment * args.segment_rows;
  const u64 record = row_at(tile, args.offsets, args.records, first);
  const u8* letters = args.letters.letters + first;
  LaneBases<kLettersOfLane, u64> bases(tile, args.rows - first,
                                       [&](u32 at) { return base_of(letters[at]); });
  if (args.letters.qualities) {
    DG_UNROLL
    for (u32 i = 0; i < kLettersOfLane; ++i) {
      const u64 at = first + bases.first + i;
      if (at < args.rows && args.letters.qualities[at] < args.letters.least) bases.ends |= 1u << i;
    }
  }
  // Where later records begin.
  u64 next = record + 1;
  u32 met;
  do {
    const u64 own = next + tile.lane();
    const u64 begin = own < args.records ? static_cast<u64>(args.offsets[own]) - first : places;
    met = tile.ballot(begin < places);
    for (u32 left = met; left != 0; left &= left - 1) {
      const u64 at = tile.shuffle(begin, lowest_one(left)) - bases.first;
      if (at < kLettersOfLane) bases.begins |= 1u << at;
    }
    next += Tile::size;
  } while (met >> (Tile::size - 1) != 0);
  bases.look_behind(tile);
  const LaneMinimizers found(tile, args.rule, bases,
                             static_cast<u32>(end_of_rows(args, segment) - first));
  const auto node_at = [&](u32 i) {
    return args.nodes[row_at(args.offsets, args.records, first + bases.first + i, record)];
  };
  u32 taken = found.starts;
  if (args.nodes) {
    DG_ROLL
    for (u32 left = taken; left != 0; left &= left - 1)
      if (node_at(lowest_one(left)) == 0) taken &= ~(left & -left);
  }
  const u32 sum = inclusive_sum(tile, count_ones(taken));
  u32 place = sum - count_ones(taken);
  const u64 room = segment * args.room;
  DG_ROLL
  for (u32 left = taken; left != 0 && place < args.room; left &= left - 1) {
    const u32 i = lowest_one(left);
    const u64 to = room + place++;
    args.runs.starts[to] = static_cast<u32>(first) + bases.first + i;
    args.runs.kmers[to] = static_cast<u16>(found.kmers_of(i, bases.first));
    if (args.nodes) args.runs.nodes[to] = node_at(i);
  }
  place = sum - count_ones(taken);
  DG_UNROLL
  for (u32 i = 0; i < kLettersOfLane; ++i) {
    if (!(taken >> i & 1)) continue;
    if (place < args.room) args.runs.minimizers[room + place] = found.words[i] ^ args.rule.toggle;
    ++place;
  }
  if (tile.lane() == Tile::size - 1) args.counts[segment] = sum;
}

/// Of k-mers with `kUsualLmers` l-mers.
template <int W>
DG_KERNEL minimizer_find(MinimizerArgs args) {
  for_each_segment<W>(args.n, args.segment_rows, [&](auto tile, u64 segment) {
    if constexpr (decltype(tile)::size == 1)
      find_minimizers(args, segment, FewLast<kUsualLmers>{});
    else
      find_together(tile, args, segment);
  });
}

DG_KERNEL minimizer_find_any(MinimizerArgs args) {
  for_each_segment<1>(args.n, args.segment_rows, [&](auto, u64 segment) {
    u64* const words = args.memory + segment * (args.memory_step == 1 ? kMostLmers : 1);
    find_minimizers(args, segment,
                    ManyLast({words, args.memory_step}, args.rule.k - args.rule.l + 1));
  });
}

struct MinimizerPackArgs {
  MinimizerRuns apart;  // as `minimizer_find` leaves them
  MinimizerRuns packed;
  const i64* places;  // of each segment's runs, and the end of the last one's
  u64 room;
  u64 segment_rows;
  u64 n;  // segments

  DG_FIELDS(apart, packed, places, room, segment_rows, n)
};

/// The runs of all segments, one after another.
template <int W>
DG_KERNEL minimizer_pack(MinimizerPackArgs args) {
  for_each_segment<W>(args.n, args.segment_rows / 8 + 1, [&](auto tile, u64 segment) {
    const u64 place = static_cast<u64>(args.places[segment]);
    const u64 runs = static_cast<u64>(args.places[segment + 1]) - place;
    for (u64 i = tile.lane(); i < runs; i += tile.size)
      args.packed.put(place + i, args.apart, segment * args.room + i);
  });
}

/// The runs of the first, or the second, mates of all reads.
struct MateRuns {
  const i64* offsets;  // of the letters
  const i64*
      places;  // of each read's runs, and the end of the last one's; null: there are no mates
  const u64* minimizers;
  const u32* starts;
  const u16* kmers;
  const u32* taxa;  // numbers of a tree; 0: none

  DG_FIELDS(offsets, places, minimizers, starts, kmers, taxa)

  /// Of a read: k-mers, those with other letters than bases among them.
  DG_FN u64 kmers_of(u64 read, u64 k) const {
    const u64 letters = static_cast<u64>(offsets[read + 1] - offsets[read]);
    return letters < k ? 0 : letters - k + 1;
  }
};

struct ReadCallArgs {
  MateRuns first;
  MateRuns second;
  TaxonTree tree;
  const i64* taxids;  // of each number
  u32* memory;        // four words for each run of both mates
  i64* calls;         // of each read: its taxid, 0 for none
  u32* hits;          // k-mers in the clade of the call
  double confidence;  // share of the k-mers that the clade of a call has
  u64 k;
  u64 least_groups;     // hits of minimizers, those that go on counted once
  u64 is_quick;         // 1: the first taxon that comes with so many groups is the call
  u64 skips_ambiguous;  // 1: k-mers with other letters do not count
  u64 n;                // reads

  DG_FIELDS(first, second, tree, taxids, memory, calls, hits, confidence, k, least_groups, is_quick,
            skips_ambiguous, n)
};

/// The smallest whole number that is not below.
DG_FN u64 rounded_up(double number) {
  const u64 whole = static_cast<u64>(number);
  return static_cast<double>(whole) < number ? whole + 1 : whole;
}

/// Votes of a mate's runs; `groups` goes up by those that hit, and `quick` gets the taxon that brings them to
/// `least_groups`. Returns the k-mers.
DG_FN u64 vote(const ReadCallArgs& args, const MateRuns& mate, u64 read, TaxonVotes& votes,
               u64& groups, u32& quick) {
  if (!mate.places) return 0;
  u64 kmers = 0;
  const u64 first = static_cast<u64>(mate.places[read]);
  const u64 last = static_cast<u64>(mate.places[read + 1]);
  for (u64 run = first; run < last; ++run) {
    const u32 taxon = mate.taxa[run];
    kmers += mate.kmers[run];
    if (taxon == 0) continue;
    // One that goes on, or comes again behind other letters, is no further group.
    groups += run == first || mate.minimizers[run] != mate.minimizers[run - 1];
    if (quick == 0 && groups >= args.least_groups) quick = taxon;
    votes.add(taxon, mate.kmers[run]);
  }
  return args.skips_ambiguous ? kmers : mate.kmers_of(read, args.k);
}

DG_FN void call_alone(const ReadCallArgs& args, u64 read) {
  u64 room_at = static_cast<u64>(args.first.places[read]);
  u64 room = static_cast<u64>(args.first.places[read + 1]) - room_at;
  if (args.second.places) {
    const u64 at = static_cast<u64>(args.second.places[read]);
    room_at += at;
    room += static_cast<u64>(args.second.places[read + 1]) - at;
  }
  TaxonVotes votes(args.memory + 4 * room_at, room);
  u64 groups = 0;
  u32 quick = 0;
  u64 kmers = vote(args, args.first, read, votes, groups, quick);
  kmers += vote(args, args.second, read, votes, groups, quick);
  u32 call = 0;
  if (groups >= args.least_groups) {
    const u64 required = rounded_up(args.confidence * static_cast<double>(kmers));
    call = args.is_quick ? quick : votes.supported(args.tree, votes.best(args.tree), required);
  }
  args.calls[read] = args.taxids[call];
  args.hits[read] = call == 0 ? 0 : votes.of_clade(args.tree, call);
}

/// As `vote`, of lanes that read neighbouring runs; returns whether there was room for all taxa.
template <class Tile>
DG_FN bool vote_together(const ReadCallArgs& args, const MateRuns& mate, u64 read,
                         LaneVotes<Tile>& votes, u64& groups, u32& quick, u32& kmers) {
  if (!mate.places) return true;
  const Tile tile = votes.tile;
  const u64 first = static_cast<u64>(mate.places[read]);
  const u64 last = static_cast<u64>(mate.places[read + 1]);
  for (u64 start = first; start < last; start += Tile::size) {
    const u64 run = start + tile.lane();
    const u32 taxon = run < last ? mate.taxa[run] : 0, here = run < last ? mate.kmers[run] : 0;
    kmers += here;
    const bool is_group =
        taxon != 0 && (run == first || mate.minimizers[run] != mate.minimizers[run - 1]);
    const u32 begun = tile.ballot(is_group);
    if (args.is_quick) {
      const u64 met = groups + count_ones(begun & (ones_below(tile.lane()) << 1 | 1));
      const u32 enough = tile.ballot(taxon != 0 && met >= args.least_groups);
      if (quick == 0 && enough != 0) quick = tile.shuffle(taxon, lowest_one(enough));
    }
    groups += count_ones(begun);
    if (!votes.add(args.tree, taxon, here)) return false;
  }
  return true;
}

template <int W>
DG_KERNEL read_call(ReadCallArgs args) {
  for_each_tile<W>(args.n, [&](auto tile, u64 read) {
    if constexpr (decltype(tile)::size == 1) {
      call_alone(args, read);
    } else {
      LaneVotes<decltype(tile)> votes{tile};
      u64 groups = 0;
      u32 quick = 0, own = 0;
      if (!vote_together(args, args.first, read, votes, groups, quick, own) ||
          !vote_together(args, args.second, read, votes, groups, quick, own)) {
        if (tile.lane() == 0) call_alone(args, read);
        return;
      }
      u64 kmers = votes.sum(own);
      if (!args.skips_ambiguous) {
        kmers = args.first.kmers_of(read, args.k);
        if (args.second.places) kmers += args.second.kmers_of(read, args.k);
      }
      u32 call = 0;
      if (groups >= args.least_groups) {
        const u64 required = rounded_up(args.confidence * static_cast<double>(kmers));
        call = args.is_quick ? quick : votes.supported(args.tree, votes.best(args.tree), required);
      }
      const u32 hits = call == 0 ? 0 : votes.of_clade(args.tree, call);
      if (tile.lane() != 0) return;
      args.calls[read] = args.taxids[call];
      args.hits[read] = hits;
    }
  });
}

struct ReadRunsArgs {
  MateRuns first;
  MateRuns second;
  const i64* numbers;  // what stands for each number of a tree
  i64* counts;         // or null; of each read: how many runs it has
  const i64* places;   // else where they go
  i64* taxids;
  u32* kmers;
  i64 ambiguous;  // what stands for k-mers with other letters than bases
  i64 border;     // and what stands between mates
  u64 k;
  u64 n;  // reads

  DG_FIELDS(first, second, numbers, counts, places, taxids, kmers, ambiguous, border, k, n)
};

/// Calls `visit(what, kmers)` for runs of one read's k-mers that have the same taxon, and for those between.
template <class Visit>
DG_FN void for_each_read_run(const ReadRunsArgs& args, u64 read, const Visit& visit) {
  i64 held = 0;
  u64 count = 0;
  const auto meet = [&](i64 what, u64 kmers) {
    if (kmers == 0) return;
    if (count != 0 && what != held) {
      visit(held, count);
      count = 0;
    }
    held = what;
    count += kmers;
  };
  const auto follow = [&](const MateRuns& mate) {
    const u64 kmers = mate.kmers_of(read, args.k);
    u64 next = static_cast<u64>(mate.offsets[read]);
    const u64 end = next + kmers;
    const u64 last = static_cast<u64>(mate.places[read + 1]);
    for (u64 run = static_cast<u64>(mate.places[read]); run < last; ++run) {
      meet(args.ambiguous, mate.starts[run] - next);
      meet(args.numbers[mate.taxa[run]], mate.kmers[run]);
      next = mate.starts[run] + mate.kmers[run];
    }
    meet(args.ambiguous, end - next);
  };
  follow(args.first);
  if (args.second.places) {
    meet(args.border, 1);
    follow(args.second);
  }
  if (count != 0) visit(held, count);
}

DG_KERNEL read_runs(ReadRunsArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 read) {
    u64 at = args.counts ? 0 : static_cast<u64>(args.places[read]);
    for_each_read_run(args, read, [&](i64 what, u64 kmers) {
      if (!args.counts) {
        args.taxids[at] = what;
        args.kmers[at] = static_cast<u32>(kmers);
      }
      ++at;
    });
    if (args.counts) args.counts[read] = static_cast<i64>(at);
  });
}

}  // namespace dg

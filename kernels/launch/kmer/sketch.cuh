/// Records into the features of their windows. Rows are windows.
#pragma once

#include "batch/rows.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "kmer/sketch.cuh"

namespace dg {

/// Records come from two places in turn: the first mates of reads, then the second ones; or from one.
struct SketchArgs {
  const u8* letters;
  const i64* offsets;  // of each read, and the end of the last one
  const u8* mate_letters;
  const i64* mate_offsets;  // or null: there are no mates
  const i64* windows;       // of each record: its first window; and the number of all
  void* features;           // of each window: `most` places, the last ones empty
  i64* counts;              // of each window: how many features it has; or null
  u64 k;
  u64 most;
  u64 window;
  u64 stride;
  u64 records;
  u64 rows;          // windows that have places; those behind the last one have no features
  u64 segment_rows;  // windows of a tile
  u64 n;             // segments

  DG_FIELDS(letters, offsets, mate_letters, mate_offsets, windows, features, counts, k, most,
            window, stride, records, rows, segment_rows, n)
};

/// The letters of a window; none behind the last one.
struct WindowLetters {
  const u8* letters = nullptr;
  u64 n = 0;
};

/// Of a row; `record` is one not behind its record, and becomes that.
DG_FN WindowLetters letters_of(const SketchArgs& args, u64 row, u64 all, u64& record) {
  if (row >= all) return {};
  record = row_at(args.windows, args.records, row, record);
  const bool is_mate = args.mate_offsets && record % 2 != 0;
  const u64 read = args.mate_offsets ? record / 2 : record;
  const i64* offsets = is_mate ? args.mate_offsets : args.offsets;
  const u64 first = (row - static_cast<u64>(args.windows[record])) * args.stride;
  const u64 left = static_cast<u64>(offsets[read + 1] - offsets[read]) - first;
  return {(is_mate ? args.mate_letters : args.letters) + offsets[read] + first,
          left < args.window ? left : args.window};
}

/// Each window by one lane.
template <class Feature>
DG_FN void sketch_alone(const SketchArgs& args, u64 row, const WindowLetters& of) {
  const u32 most = static_cast<u32>(args.most);
  Feature* to = static_cast<Feature*>(args.features) + row * most;
  const u32 found = sketch_of(of.letters, of.n, static_cast<u32>(args.k), most, to);
  DG_ROLL
  for (u32 at = found; at < most; ++at) to[at] = kNoFeature<Feature>;
  if (args.counts) args.counts[row] = found;
}

/// As many windows as the tile has lanes, from `start` on, by all lanes one after another.
template <class Feature, class Tile>
DG_FN void sketch_together(Tile tile, const SketchArgs& args, u64 start, u64 end,
                           const WindowLetters& own) {
  const u32 k = static_cast<u32>(args.k), most = static_cast<u32>(args.most);
  u32 windows = static_cast<u32>(end - start < Tile::size ? end - start : Tile::size);
  compute_afresh(windows);
  DG_ROLL
  for (u32 i = 0; i < windows; ++i) {
    const u8* letters =
        reinterpret_cast<const u8*>(tile.shuffle(reinterpret_cast<u64>(own.letters), i));
    const u32 n = tile.shuffle(static_cast<u32>(own.n), i);
    Feature* to = static_cast<Feature*>(args.features) + (start + i) * most;
    const u32 found = n <= 2 * Tile::size ? sketch_in_lanes<2>(tile, letters, n, k, most, to)
                                          : sketch_in_lanes<4>(tile, letters, n, k, most, to);
    DG_ROLL
    for (u32 at = found + fresh_lane(tile); at < most; at += Tile::size)
      to[at] = kNoFeature<Feature>;
    if (args.counts && tile.lane() == 0) args.counts[start + i] = found;
  }
}

template <class Feature, int W>
DG_KERNEL sketch_find(SketchArgs args) {
  for_each_segment<W>(args.n, args.segment_rows * args.window, [&](auto tile, u64 segment) {
    constexpr u32 lanes = decltype(tile)::size;
    const u64 all = static_cast<u64>(args.windows[args.records]), end = end_of_rows(args, segment);
    u64 record = 0;
    for (u64 start = segment * args.segment_rows; start < end; start += lanes) {
      const u64 row = start + tile.lane();
      const WindowLetters own = letters_of(args, row, row < end ? all : 0, record);
      if constexpr (lanes > 1) {
        // Where sketches have places in the registers of a quarter of the lanes.
        if (args.most <= lanes && args.k <= lanes && args.window <= ~0u) {
          sketch_together<Feature>(tile, args, start, end, own);
          continue;
        }
      }
      if (row < end) sketch_alone<Feature>(args, row, own);
    }
  });
}

struct SketchPackArgs {
  const void* features;  // of each window: `most` places
  const i64* windows;    // of each record: its first window; and the number of all, which is n
  const u32* targets;    // of each record
  const i64* firsts;     // of each record: the number of its first window in the target
  const i64* places;     // of each window: where its features go; and the number of all
  void* features_to;
  u64* locations;  // target and window
  u64 most;
  u64 records;
  u64 n;

  DG_FIELDS(features, windows, targets, firsts, places, features_to, locations, most, records, n)
};

/// Features without empty places, and where each one is.
template <class Feature>
DG_KERNEL sketch_pack(SketchPackArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const u64 record = row_at(args.windows, args.records, row, 0);
    const u64 number =
        row - static_cast<u64>(args.windows[record]) + static_cast<u64>(args.firsts[record]);
    const u64 location = static_cast<u64>(args.targets[record]) << 32 | number;
    const Feature* from = static_cast<const Feature*>(args.features) + row * args.most;
    u64 to = static_cast<u64>(args.places[row]);
    for (; to < static_cast<u64>(args.places[row + 1]); ++to) {
      static_cast<Feature*>(args.features_to)[to] = *from++;
      args.locations[to] = location;
    }
  });
}

}  // namespace dg

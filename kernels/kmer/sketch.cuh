/// Sketches: the lowest distinct hashes, which are the features, of the k-mers in a window of letters (minhashing as
/// in MetaCache, Müller et al. 2017).
#pragma once

#include "core/hash.cuh"
#include "core/platform.cuh"
#include "kmer/bases.cuh"
#include "kmer/kmers.cuh"
#include "kmer/lane_bases.cuh"
#include "kmer/lane_words.cuh"

namespace dg {

/// What is no feature.
template <class Feature>
inline constexpr Feature kNoFeature = static_cast<Feature>(~0ull);

/// Of k-mers of up to 16 bases in 32 bits, of longer ones in 64.
template <class Feature>
DG_FN Feature feature_of(u64 kmer) {
  if constexpr (same<Feature, u32>) {
    u32 word = static_cast<u32>(kmer);
    word = (word >> 16 ^ word) * 0x45d9f3bu;
    word = (word >> 16 ^ word) * 0x45d9f3bu;
    return word >> 16 ^ word;
  } else {
    return mix(kmer);
  }
}

/// Of DNA or RNA: U is T.
DG_FN u32 base_or_u(u8 letter) {
  const u32 base = base_of(letter);
  return base == kNoBase && (letter & 0xdfu) == 'U' ? 3 : base;
}

/// Calls `visit(feature)` for the k-mers of n letters in turn. Letters that are no bases part k-mers.
template <class Feature, class Visit>
DG_FN void for_each_feature(const u8* letters, u64 n, u32 k, const Visit& visit) {
  Kmer64 kmer;
  u32 run = 0;
  DG_ROLL
  for (u64 at = 0; at < n; ++at) {
    const u32 base = base_or_u(letters[at]);
    if (base == kNoBase) {
      run = 0;
      continue;
    }
    kmer.push(base, k);
    if (++run >= k) visit(feature_of<Feature>(kmer.canonical()));
  }
}

/// Writes the `most` lowest features, ascending; returns how many there are. Each is put in its place as it comes.
template <class Feature>
DG_FN u32 sketch_by_places(const u8* letters, u64 n, u32 k, u32 most, Feature* to) {
  u32 found = 0;
  Feature bound = kNoFeature<Feature>;  // from which on features have no place
  for_each_feature<Feature>(letters, n, k, [&](Feature feature) {
    if (feature >= bound) return;
    u32 place = found;
    DG_ROLL
    while (place > 0 && to[place - 1] > feature) --place;
    if (place > 0 && to[place - 1] == feature) return;
    if (found < most) ++found;
    DG_ROLL
    for (u32 i = found - 1; i > place; --i) to[i] = to[i - 1];
    to[place] = feature;
    if (found == most) bound = to[most - 1];
  });
  return found;
}

#if !DG_GPU

/// Features of which the lowest ones are chosen at once, of sketches of so many at most.
inline constexpr u32 kFeaturesAtOnce = 64;
inline constexpr u32 kShortSketch = 32;

/// The same with the features below `bound`, by arrays of the lane's own; more than `most` where these are too
/// many, or not enough.
template <class Feature>
DG_FN u32 sketch_below(const u8* letters, u64 n, u32 k, u32 most, Feature bound, Feature* to) {
  Feature low[kFeaturesAtOnce + 1], ordered[kFeaturesAtOnce];
  u32 size = 0, all = 0;
  for_each_feature<Feature>(letters, n, k, [&](Feature feature) {
    // No branch: nobody can tell which ones are low.
    low[size] = feature;
    const u32 is_low = feature < bound;
    all += is_low;
    size += is_low & static_cast<u32>(size < kFeaturesAtOnce);
  });
  if (all > kFeaturesAtOnce) return most + 1;
  for (u32 i = 0; i < size; ++i) ordered[i] = kNoFeature<Feature>;
  for (u32 i = 0; i < size; ++i) {
    u32 rank = 0;
    for (u32 other = 0; other < size; ++other) rank += low[other] < low[i];
    ordered[rank] = low[i];
  }
  u32 found = 0;
  // Places of features that came before are empty.
  for (u32 i = 0; i < size && found < most; ++i)
    if (ordered[i] != kNoFeature<Feature>) to[found++] = ordered[i];
  return found < most && bound != kNoFeature<Feature> ? most + 1 : found;
}

#endif

/// Writes the `most` lowest features of n letters, ascending; fewer where the letters have fewer k-mers or
/// these are not distinct. Returns how many.
template <class Feature>
DG_FN u32 sketch_of(const u8* letters, u64 n, u32 k, u32 most, Feature* to) {
  if (n < k) return 0;
  const u64 kmers = n - k + 1;
  if (kmers < most) most = static_cast<u32>(kmers);
#if !DG_GPU
  if (most <= kShortSketch) {
    // Hashes are spread evenly: the lowest ones are below this, unless k-mers are broken or repeated.
    const u64 likely = most + most / 2 + 6;
    const Feature bound = likely < kmers ? kNoFeature<Feature> / static_cast<Feature>(kmers) *
                                               static_cast<Feature>(likely)
                                         : kNoFeature<Feature>;
    const u32 found = sketch_below(letters, n, k, most, bound, to);
    if (found <= most) return found;
  }
#endif
  return sketch_by_places(letters, n, k, most, to);
}

/// As `sketch_of`, by the lanes of a tile, in registers: `Count` k-mers of each at once. Features of the k-mers before
/// them have the places of the last quarter of the lanes, which are enough for `most`, unless all are taken at once.
template <u32 Count, class Feature, class Tile>
DG_FN u32 sketch_in_lanes(Tile tile, const u8* letters, u32 n, u32 k, u32 most, Feature* to) {
  constexpr u32 room = Count * Tile::size, room_again = room - room / 4;
  u32 found = 0;
  u32 places = room;
  DG_ROLL
  while (n >= k) {
    u32 kmers = room - k + 1 < places ? room - k + 1 : places;
    if (n - k + 1 < kmers) kmers = n - k + 1;
    LaneBases<Count, Feature> bases(tile, n, [&](u32 at) { return base_or_u(letters[at]); });
    bases.look_behind(tile);
    const u32 whole = bases.kmers(k, kmers);
    letters += kmers;
    n -= kmers;
    Feature features[Count];
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i) {
      const Feature feature = feature_of<Feature>(bases.canonical(i, k));
      features[i] = whole >> i & 1 ? feature : kNoFeature<Feature>;
    }
    if (places < room) {
      DG_UNROLL
      for (u32 i = 0; i < Count; ++i)
        if (bases.first + i >= places && bases.first + i - places < found)
          features[i] = to[bases.first + i - places];
    }
    sort_words(tile, features);
    // Those that came before are left out.
    const u32 lane = fresh_lane(tile);
    u32 place = 0, all = 0, fresh = 0;
    const Feature below = tile.shuffle(features[Count - 1], lane - 1);
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i) {
      const bool is_first = lane == 0 && i == 0;
      const bool is_new = features[i] != kNoFeature<Feature> &&
                          (is_first || features[i] != (i == 0 ? below : features[i - 1]));
      const u32 lanes = tile.ballot(is_new);
      place += count_ones(lanes & ones_below(lane));
      all += count_ones(lanes);
      fresh |= static_cast<u32>(is_new) << i;
    }
    // Everyone has read what was kept before it is written.
    tile.sync();
    DG_UNROLL
    for (u32 i = 0; i < Count; ++i) {
      if (!(fresh >> i & 1)) continue;
      if (place < most) to[place] = features[i];
      ++place;
    }
    found = all < most ? all : most;
    places = room_again;
    tile.sync();
  }
  return found;
}

}  // namespace dg

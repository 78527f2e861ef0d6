/// Sketches: the lowest distinct hashes, which are the features, of the k-mers in a window of letters (minhashing as
/// in MetaCache, Müller et al. 2017).
#pragma once

#include "core/hash.cuh"
#include "core/platform.cuh"
#include "kmer/bases.cuh"
#include "kmer/kmers.cuh"

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
    while (place > 0 && to[place - 1] > feature) --place;
    if (place > 0 && to[place - 1] == feature) return;
    if (found < most) ++found;
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

}  // namespace dg

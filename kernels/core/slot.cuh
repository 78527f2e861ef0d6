/// What a slot holds and how it is published.
///
///   keys alone              compare-and-swap of the key
///   packed, 4 + 4 bytes     compare-and-swap of the pair: a pair is never seen torn
///   aos, 8 + 8 bytes        128-bit compare-and-swap on sm_90 and newer; elsewhere the key, then the value
///   aos, 4 + 4 bytes        the key, then the value
///   soa                     keys and values in two arrays; the key, then the value
///   keys of 16 bytes        soa: 128-bit compare-and-swap of the key on sm_90 and newer, and on CPUs; elsewhere
///                           claimed first (table/claims.cuh)
///
/// "The key, then the value" is safe because no launch both inserts and reads values, and because
/// the value itself is one atomic store: of two writers one whole value wins.
#pragma once

#include "core/bucket.cuh"

namespace dg {

struct NoValue {};

template <class Value>
struct StoredAs {
  using Type = Value;
};
template <>
struct StoredAs<void> {
  using Type = NoValue;
};

/// Two bit patterns mark free slots; keys with these bits live in the side slots of OpenState.
template <class Key>
struct Mark {
  static constexpr Key empty = ~Key{0};     // no key has passed its bucket
  static constexpr Key erased = empty - 1;  // held a key in a bucket that others have passed
};

/// Where the value of a key stands (WarpCore §IV-B1): in one word with it, behind it, or in an array of
/// its own. Sets have keys alone whatever their layout.
enum class Layout : u32 { packed, aos, soa };

/// The layout of a table whose user chooses none.
template <class Key, class ValueType>
inline constexpr Layout natural_layout =
    sizeof(typename StoredAs<ValueType>::Type) != sizeof(Key) ? Layout::soa
    : sizeof(Key) == 4                                        ? Layout::packed
                                                              : Layout::aos;

template <class KeyType, class ValueType, Layout layout = natural_layout<KeyType, ValueType>>
struct Slot {
  using Key = KeyType;
  using Value = typename StoredAs<ValueType>::Type;

  static constexpr bool has_value = !same<ValueType, void>;
  static constexpr bool paired = has_value && layout != Layout::soa;
  static constexpr bool one_word = paired && layout == Layout::packed;
  static_assert(!paired || sizeof(Key) == sizeof(Value));
  static_assert(!one_word || sizeof(Key) == 4);
  /// Whether a key is never seen without its value.
  static constexpr bool whole =
      !has_value || one_word || (DG_WIDE_SWAP && paired && sizeof(Key) == 8);
  static constexpr u32 nbytes = paired ? 2 * sizeof(Key) : sizeof(Key);
  static constexpr u32 per_quarter = kQuarterBytes / nbytes;
  static constexpr u32 per_bucket = kBucketBytes / nbytes;

  using Unit = typename Chosen<one_word, u64, Key>::Type;

  static_assert(sizeof(Key) == 4 || sizeof(Key) == 8 || (sizeof(Key) == 16 && !paired));

  DG_FN static Key key(const Quarter& quarter, u32 index) {
    if constexpr (sizeof(Key) == 4)
      return quarter.word[index * (nbytes / 4)];
    else if constexpr (sizeof(Key) == 8)
      return join(quarter, index * (nbytes / 4));
    else
      return {join(quarter, 0), join(quarter, 2)};
  }

  /// Only of paired slots; the others' values are not in the quarter.
  DG_FN static Value value(const Quarter& quarter, u32 index) {
    if constexpr (sizeof(Key) == 4)
      return quarter.word[2 * index + 1];
    else
      return join(quarter, 2);
  }

  /// The same, of an index that only the running program knows; any value where it is past the end.
  DG_FN static Value value_at(const Quarter& quarter, u32 index) {
    Value found = value(quarter, 0);
    DG_UNROLL
    for (u32 i = 1; i < per_quarter; ++i)
      if (i == index) found = value(quarter, i);
    return found;
  }

  /// Makes the slot `index` of a quarter.
  DG_FN static void put(Quarter& quarter, u32 index, Key key, [[maybe_unused]] Value value) {
    const u32 first = index * (nbytes / 4);
    if constexpr (sizeof(Key) == 16) {
      split(quarter, 0, key.low);
      split(quarter, 2, key.high);
    } else {
      split(quarter, first, key);
    }
    if constexpr (paired) split(quarter, first + sizeof(Key) / 4, value);
  }

  DG_FN static u64 word(Key key, Value value) {
    return static_cast<u64>(value) << 32 | static_cast<u64>(key);
  }

 private:
  template <class Word>
  DG_FN static void split(Quarter& quarter, u32 first, Word word) {
    quarter.word[first] = static_cast<u32>(word);
    if constexpr (sizeof(Word) == 8)
      quarter.word[first + 1] = static_cast<u32>(static_cast<u64>(word) >> 32);
  }

  DG_FN static u64 join(const Quarter& quarter, u32 first) {
    return static_cast<u64>(quarter.word[first + 1]) << 32 | quarter.word[first];
  }
};

}  // namespace dg

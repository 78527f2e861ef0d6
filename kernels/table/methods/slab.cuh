/// The slab hash (SlabHash §III–IV): sets and maps of one value a key, and mixed batches on them.
#pragma once

#include "table/slab/crews.cuh"
#include "table/slab/unique_keys.cuh"

namespace dg {

/// A table of one value a key, or of keys alone.
template <class KeyType, class ValueType>
struct Slab : UniqueKeys<SlabChains<KeyType, ValueType, false>> {
  using Chains = SlabChains<KeyType, ValueType, false>;
  using typename Chains::Key;
  using typename Chains::Value;

  /// The operations of table/slab/unique_keys.cuh on the keys that the lanes bring, a key each. On an H100, with 2^22
  /// keys at chain 0.6: crews of four find 29 G keys/s and miss 19, crews of eight 26 and 21.5; one by one it is 7
  /// and 7.
  template <class Tile>
  DG_FN Found<Value> find_own(Tile tile, bool asked, Key mine) const
    requires(Tile::size == 32)
  {
    return SlabCrews<Slab, 8>{*this}.template find<4>(tile, asked, mine);
  }

  template <class Tile>
  DG_FN Outcome insert_own(Tile tile, bool asked, Key mine, Value value, Change how) const
    requires(Tile::size == 32)
  {
    return SlabCrews<Slab, 4>{*this}.template insert<Chains::has_ready_bits ? 1 : 2>(
        tile, asked, mine, value, how);
  }

  template <class Tile>
  DG_FN Removed erase_own(Tile tile, bool asked, Key mine) const
    requires(Tile::size == 32)
  {
    const u32 erased = SlabCrews<Slab, 8>{*this}.template erase<2>(tile, asked, mine);
    return {erased, erased};
  }

  template <class Tile>
  DG_FN Executed<Value> execute_own(Tile tile, bool asked, Op op, Key mine, Value value) const
    requires(Tile::size == 32 && !Chains::has_ready_bits)  // pairs of 8 + 8 bytes would spill
  {
    return SlabCrews<Slab, 8>{*this}.template execute<2>(tile, asked, op, mine, value);
  }
};

}  // namespace dg

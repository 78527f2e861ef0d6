/// The multimaps of method `auto` inside kernels of users, which count the values of keys.
#pragma once

#include "device/auto.cuh"
#include "launch/bucket_list.cuh"

namespace dg {

struct AutoListsStorage {
  OpenStorage keys;  // with the entries of their lists
  ListStorage lists;

  DG_FIELDS(keys, lists)
};

namespace device {

template <class KeyType, class EntryType>
struct AutoLists {
  using Key = KeyType;
  using Value = EntryType;
  using Storage = AutoListsStorage;
  static constexpr bool takes_reserved = true;

  Storage at;

  /// The number of values of a key.
  template <class Tile>
  DG_FN u64 count(Tile tile, Key key) const {
    const auto got = Auto<Key, Value>{at.keys}.find(tile, key);
    if (!got.found) return 0;
    const auto content = at.lists.entries.open(&got.value, 0).open(at.lists.records);
    return content.count + content.listed;
  }
};

}  // namespace device
}  // namespace dg

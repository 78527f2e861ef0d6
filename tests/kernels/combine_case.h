/// Values of equal keys that are combined, by tiles of every width, against a dictionary.
#pragma once

#include "lockstep_case.h"

namespace dg::test::combining {
namespace {

/// A bucket takes four lanes, or one that takes turns.
template <int W>
inline constexpr int kWide = W == 2 ? 4 : W;

template <class Key, class Value>
std::vector<Value> find(TableMemory<Key, Value>& table, const std::vector<Key>& keys,
                        std::vector<u8>& found) {
  std::vector<Value> values(keys.size());
  found.assign(keys.size(), 9);
  open_find<Key, Value, 1>(
      {table.storage, keys.data(), values.data(), found.data(), keys.size(), 77});
  return values;
}

/// Rows of a key whose values are combined, over stored keys and new ones, by one launch and by the one
/// that takes what it left; then all rows of a plain insert that created no key.
template <class Key, class Value, int W>
void combine(Change change, u32 range) {
  std::mt19937 random(W + static_cast<u32>(change.action));
  const u64 n = 64;
  TableMemory<Key, Value> table(7, 2);
  std::map<Key, Value> model;
  const auto word_of = [&] {
    const Value number = static_cast<Value>(random()) % 9 - 4;
    if (change.kind != ValueKind::floating)
      return static_cast<Value>(number << change.spare_bits >> change.spare_bits);
    if constexpr (sizeof(Value) == 4)
      return as_real<Value>(static_cast<float>(static_cast<int>(number)));
    else
      return as_real<Value>(static_cast<double>(static_cast<i64>(number)));
  };
  for (const bool whole : {true, false, true}) {
    const auto keys = contended_keys<Key>(random, n, range);
    std::vector<Value> values(n);
    std::vector<u8> flags(n, 9);
    std::map<Key, u32> created;
    for (u64 row = 0; row < n; ++row) {
      values[row] = word_of();
      const auto [at, fresh] = model.emplace(keys[row], values[row]);
      created[keys[row]] += fresh;
      if (!fresh) at->second = changed(at->second, values[row], change);
    }
    const u64 kind = static_cast<u64>(change.kind) | static_cast<u64>(change.spare_bits) << 32;
    OpenCombineArgs args{table.storage,
                         keys.data(),
                         values.data(),
                         flags.data(),
                         n,
                         0,
                         static_cast<u64>(change.action),
                         kind,
                         whole ? 2ull : 0ull};
    if (whole)
      open_combine<Key, Value, kWide<W>>(args);
    else
      open_insert<Key, Value, kWide<W>>(
          {table.storage, keys.data(), values.data(), flags.data(), nullptr, n, ~0ull, 0});
    open_change<Key, Value, kWide<W>>(args);
    for (u64 row = 0; row < n; ++row) {
      CHECK(flags[row] <= 1);
      created[keys[row]] -= flags[row];
    }
    for (const auto& [key, left] : created) CHECK(left == 0);
    CHECK(table.state.occupied == model.size());
    std::vector<u8> found;
    const auto held = find<Key, Value>(table, keys, found);
    for (u64 row = 0; row < n; ++row)
      // Sums leave the spare bits as they come.
      CHECK(found[row] && static_cast<Value>(held[row] << change.spare_bits) ==
                              static_cast<Value>(model[keys[row]] << change.spare_bits));
  }
}

/// Every row brings the same, to one key and to the reserved ones.
template <class Key, class Value, int W>
void combine_term() {
  TableMemory<Key, Value> table(7);
  std::vector<Key> keys(40, 5);
  for (u64 row = 0; row < 10; ++row) keys[4 * row] = Mark<Key>::empty - row % 2;
  std::vector<u8> flags(40, 9);
  const OpenCombineArgs args{table.storage,
                             keys.data(),
                             nullptr,
                             flags.data(),
                             40,
                             3,
                             static_cast<u64>(OnExisting::sum),
                             0,
                             2};
  for (u64 batch = 1; batch < 3; ++batch) {
    open_combine<Key, Value, kWide<W>>(args);
    open_change<Key, Value, kWide<W>>(args);
    std::vector<u8> found;
    const auto held = find<Key, Value>(table, {5, Mark<Key>::empty, Mark<Key>::erased}, found);
    CHECK(
        (held == std::vector<Value>{static_cast<Value>(90 * batch), static_cast<Value>(15 * batch),
                                    static_cast<Value>(15 * batch)}));
  }
}

/// Nodes of a tree, 0 and all ones among them, over stored keys and new ones.
template <class Key, class Value, int W>
void fold_nodes() {
  std::mt19937 random(W);
  const u32 nodes = 40;
  const u64 n = 64;
  std::vector<u32> parents(nodes, 0);
  for (u32 node = 2; node < nodes; ++node) parents[node] = 1 + random() % (node - 1);
  const auto lca = [&](Value left, Value right) {
    std::vector<bool> above(nodes);
    if (left == 0) return right;
    if (right == 0) return left;
    for (; left != 0; left = parents[left]) above[left] = true;
    while (!above[right]) right = parents[right];
    return right;
  };
  TableMemory<Key, Value> table(7, 2);
  std::map<Key, Value> model;
  for (const u32 range : {4, 60, 30}) {
    const auto keys = contended_keys<Key>(random, n, range);
    std::vector<Value> values(n);
    std::vector<u8> flags(n, 9);
    std::map<Key, u32> created;
    for (u64 row = 0; row < n; ++row) {
      values[row] = random() % nodes;
      const auto [at, fresh] = model.emplace(keys[row], values[row]);
      created[keys[row]] += fresh;
      if (!fresh) at->second = lca(at->second, values[row]);
    }
    open_lca<Key, Value, kWide<W>>({table.storage,
                                    {parents.data(), nodes},
                                    keys.data(),
                                    values.data(),
                                    range == 30 ? nullptr : flags.data(),
                                    n});
    for (u64 row = 0; range != 30 && row < n; ++row) {
      CHECK(flags[row] <= 1);
      created[keys[row]] -= flags[row];
    }
    for (const auto& [key, left] : created) CHECK(range == 30 || left == 0);
    CHECK(table.state.occupied == model.size());
    std::vector<u8> found;
    const auto held = find<Key, Value>(table, keys, found);
    for (u64 row = 0; row < n; ++row) CHECK(found[row] && held[row] == model[keys[row]]);
  }
  const Tree tree{parents.data(), nodes};
  CHECK(tree.folded(~Value{0}, Value{0}) == 0 && tree.folded(Value{0}, ~Value{0}) == 0);
  CHECK(tree.folded(Value{77}, Value{5}) == 5 && tree.folded(Value{5}, Value{77}) == 5);
}

/// Integers, those of one byte too, and floats.
template <class Key, class Value, int W>
void combines() {
  constexpr u32 spare = 8 * sizeof(Value) - 8;
  combine<Key, Value, W>({OnExisting::sum, ValueKind::unsigned_integer}, 60);
  combine<Key, Value, W>({OnExisting::sum, ValueKind::signed_integer, spare}, 4);
  combine<Key, Value, W>({OnExisting::sum, ValueKind::floating}, 4);
  combine<Key, Value, W>({OnExisting::min, ValueKind::signed_integer}, 4);
  combine<Key, Value, W>({OnExisting::max, ValueKind::signed_integer, spare}, 60);
  combine<Key, Value, W>({OnExisting::max, ValueKind::floating}, 30);
  combine<Key, Value, W>({OnExisting::bit_or, ValueKind::unsigned_integer}, 20);
  combine_term<Key, Value, W>();
  fold_nodes<Key, Value, W>();
}

template <class Key, class Value>
void all_widths(const char* name) {
  for_each_width([]<int W>() { combines<Key, Value, W>(); });
  std::printf("combine %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test::combining

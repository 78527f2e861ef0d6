/// Mixed batches are linearisable: what each operation answered, and when it began and ended, fits some order in
/// which they happened one by one.
#include <array>
#include <tuple>

#include "slab_case.h"
#include "supernode_case.h"

namespace dg::test {
namespace {

/// One operation on one key.
struct Event {
  Op op;
  u64 value;  // that it brought
  u64 begin;
  u64 end;
  bool flag;
  u64 found;
};

/// What a dictionary of one key holds.
struct Content {
  bool present;
  u64 value;
};

/// What a dictionary answers, and what it holds after.
bool answers(const Event& event, Content& content, bool has_value) {
  switch (event.op) {
    case Op::find:
      return event.flag == content.present &&
             (!event.flag || !has_value || event.found == content.value);
    case Op::insert:
    case Op::upsert: {
      const bool created = !content.present;
      if (created || event.op == Op::upsert) content.value = event.value;
      content.present = true;
      return event.flag == created;
    }
    default: {
      const bool removed = content.present;
      content.present = false;
      return event.flag == removed;
    }
  }
}

/// Whether some order explains the events that are not in `done`, from `content` to `last`.
bool fits(const std::vector<Event>& events, u32 done, Content content, const Content& last,
          bool has_value) {
  if (done == (1u << events.size()) - 1)
    return content.present == last.present &&
           (!last.present || !has_value || content.value == last.value);
  u64 first_end = ~0ull;
  for (u64 i = 0; i < events.size(); ++i)
    if (!(done >> i & 1u)) first_end = std::min(first_end, events[i].end);
  for (u64 i = 0; i < events.size(); ++i) {
    // What began after another had ended comes after it.
    if (done >> i & 1u || events[i].begin > first_end) continue;
    Content then = content;
    if (answers(events[i], then, has_value) && fits(events, done | 1u << i, then, last, has_value))
      return true;
  }
  return false;
}

/// The judge itself: it accepts what overlaps, and nothing else.
void judge_is_strict() {
  const Event insert{Op::insert, 5, 0, 10, true, 0};
  Event find{Op::find, 0, 2, 3, true, 5};
  CHECK(fits({insert, find}, 0, {false, 0}, {true, 5}, true));
  find.flag = false;
  CHECK(fits({insert, find}, 0, {false, 0}, {true, 5}, true));
  find.begin = 11;
  find.end = 12;
  CHECK(!fits({insert, find}, 0, {false, 0}, {true, 5}, true));
  find.flag = true;
  find.found = 6;
  CHECK(!fits({insert, find}, 0, {false, 0}, {true, 5}, true));
  CHECK(!fits({insert, insert}, 0, {false, 0}, {true, 5}, true));
}

template <class Table>
struct Batch {
  using Key = typename Table::Key;
  using Value = typename Table::Value;
  using Stored = typename Chosen<Table::has_value, Value, void>::Type;

  MethodMemory<Table> memory;
  std::map<Key, Content> before;
  std::vector<Key> choice;
  std::vector<u8> ops;
  std::vector<Key> keys;
  std::vector<Value> values;

  /// A table of one bucket, so that chains grow, with some of the keys in it.
  Batch(std::mt19937& random, u64 key_count, u64 usable, u64 filled)
      : memory(1, random(), random() % 2, usable) {
    std::vector<Key> others;
    for (u64 i = 0; i < filled; ++i) others.push_back(static_cast<Key>(1000 + i));
    for (u64 i = 0; i < key_count; ++i) choice.push_back(static_cast<Key>(i));
    choice.push_back(Mark<Key>::empty);
    choice.push_back(Mark<Key>::erased);
    for (const Key key : choice)
      if (random() % 2) others.push_back(key);
    std::vector<Value> stored(others.size());
    for (u64 i = 0; i < others.size(); ++i) {
      if constexpr (Table::has_value) stored[i] = static_cast<Value>(100 + i);
      before[others[i]] = {true, 100 + i};
    }
    lockstep::tiles = 1;
    verb::insert<Table, 1>({memory.storage, others.data(), stored.data(), nullptr, nullptr, nullptr,
                            others.size(), 0, 0});
    CHECK(memory.state.pending == 0);
  }

  /// At most six operations for each key.
  void draw(std::mt19937& random, u64 n) {
    std::map<Key, u32> uses;
    while (ops.size() < n) {
      const Key key = choice[random() % choice.size()];
      if (++uses[key] > 6) continue;
      ops.push_back(static_cast<u8>(random() % 5));
      keys.push_back(key);
      if constexpr (Table::has_value)
        values.push_back(static_cast<Value>(1000 + ops.size()));
      else
        values.push_back({});
    }
  }

  u64 word(Value value) const {
    if constexpr (Table::has_value) return value;
    return 0;
  }

  Content content_after(Key key) const {
    const Table table{memory.storage};
    if (is_reserved(key)) {
      const SideSlots<Key, Stored> side{memory.storage.state};
      CHECK(memory.state.side_present[side.index_of(key)] <= 1);
      return {side.holds(key), word(side.value_of(key))};
    }
    const auto found = table.find(Tile<1>{}, key);
    return {found.found, word(found.value)};
  }

  void judge(const std::map<Key, std::vector<Event>>& events) {
    for (const auto& [key, of_key] : events) {
      const auto at = before.find(key);
      const Content first = at == before.end() ? Content{false, 0} : at->second;
      CHECK(fits(of_key, 0, first, content_after(key), Table::has_value));
    }
    u64 live = 0, places = Table{memory.storage}.places();
    std::map<Key, u32> seen;
    for (u64 place = 0; place < places; ++place) {
      Key key;
      Value value;
      if (!Table{memory.storage}.entry(place, key, value)) continue;
      CHECK(++seen[key] == 1);
      ++live;
    }
  }
};

/// Tiles that take an operation each, and note the time before and after.
template <class Table, int W>
void by_timestamps(std::mt19937& random, u32 tiles) {
  using Key = typename Table::Key;
  Batch<Table> batch(random, 2 + random() % 2, 1024,
                     random() % (2 * MethodMemory<Table>::unit_slots));
  batch.draw(random, 16);
  const u64 n = batch.ops.size();
  std::vector<Event> events(n);
  std::atomic<u64> clock{0};
  lockstep::tiles = tiles;
  lockstep::for_each_tile<W>(n, [&](auto tile, u64 row) {
    const Key key = batch.keys[row];
    const Op op = static_cast<Op>(batch.ops[row]);
    u64 begin = 0;
    if (tile.lane() == 0) begin = clock.fetch_add(1, std::memory_order_relaxed);
    begin = tile.shuffle(begin, 0);
    Executed<typename Table::Value> done{};
    if (!is_reserved(key))
      done = Table{batch.memory.storage}.execute(tile, op, key, batch.values[row]);
    else if (tile.lane() == 0)
      done =
          MixedSideSlots<Key, typename Batch<Table>::Stored>{{batch.memory.storage.state}}.execute(
              op, key, batch.values[row]);
    // All lanes are through before the time is taken.
    tile.any(true);
    if (tile.lane() != 0) return;
    CHECK(!done.refused);
    events[row] = {op,        batch.word(batch.values[row]),
                   begin,     clock.fetch_add(1, std::memory_order_relaxed),
                   done.flag, batch.word(done.value)};
  });
  std::map<Key, std::vector<Event>> by_key;
  for (u64 row = 0; row < n; ++row) by_key[batch.keys[row]].push_back(events[row]);
  batch.judge(by_key);
}

/// The kernel: all operations of a launch overlap. Counts rows that an erasure of the same launch made
/// miss their key: an operation of a later kind took effect first.
template <class Table, int W>
u64 by_launch(std::mt19937& random, u32 tiles, bool dry) {
  using Key = typename Table::Key;
  // Where the pool is dry its one slab is gone soon.
  Batch<Table> batch(random, 4, dry ? 1 : 1024, MethodMemory<Table>::unit_slots - 2);
  batch.draw(random, 20);
  if (dry)
    for (u64 i = 0; i < 2 * MethodMemory<Table>::unit_slots + 5; ++i) {
      batch.ops.push_back(static_cast<u8>(i % 2 ? Op::insert : Op::upsert));
      batch.keys.push_back(static_cast<Key>(5000 + i));
      batch.values.push_back({});
    }
  const u64 n = batch.ops.size();
  std::vector<typename Table::Value> found(n);
  std::vector<u8> flags(n, 9);
  std::vector<u64> rows(n), pending(n);
  for (u64 row = 0; row < n; ++row) rows[row] = row;
  auto& memory = batch.memory;
  lockstep::tiles = tiles;
  const auto launch = [&](const std::vector<u8>& ops, const u64* only, u64 most) {
    verb::execute<Table, W>({memory.storage, ops.data(), batch.keys.data(), batch.values.data(),
                             only, found.data(), flags.data(), pending.data(), rows.size(), 77,
                             most});
  };
  // Where a code is none, or more rows store than may, nothing happens.
  std::vector<u8> strange = batch.ops;
  strange[n / 2] = static_cast<u8>(Op::erase_all) + 1;
  op_counts({strange.data(), &memory.state.links, n});
  CHECK(memory.state.links >> kStrangeShift == 1);
  launch(strange, nullptr, n);
  memory.state.links = 0;
  op_counts({batch.ops.data(), &memory.state.links, n});
  launch(batch.ops, nullptr, memory.state.links - 1);
  for (const u8 flag : flags) CHECK(flag == 9);
  u32 launches = 0;
  do {
    CHECK(launches < 3);
    memory.state.pending = 0;
    launch(batch.ops, launches ? rows.data() : nullptr, memory.state.links);
    rows.assign(pending.begin(), pending.begin() + static_cast<i64>(memory.state.pending));
    for (const u64 row : rows)
      CHECK(batch.ops[row] == static_cast<u8>(Op::insert) ||
            batch.ops[row] == static_cast<u8>(Op::upsert));
    if (!rows.empty()) memory.add_room();
    ++launches;
  } while (!rows.empty());
  CHECK((launches > 1) == dry);

  std::map<Key, std::vector<Event>> by_key;
  std::map<Key, Content> content = batch.before;
  u64 later_kind_first = 0, removed = 0;
  for (u64 row = 0; row < n; ++row) {
    const Op op = static_cast<Op>(batch.ops[row]);
    CHECK(flags[row] <= 1);
    if constexpr (Table::has_value) CHECK((op == Op::find && flags[row]) || found[row] == 77);
    by_key[batch.keys[row]].push_back(
        {op, batch.word(batch.values[row]), 0, 1, flags[row] == 1, batch.word(found[row])});
    removed += flags[row] && op >= Op::erase && !is_reserved(batch.keys[row]);
    if (op == Op::find && !flags[row] && batch.before.count(batch.keys[row])) ++later_kind_first;
  }
  batch.judge(by_key);
  for (const auto& [key, events] : by_key) content[key] = batch.content_after(key);
  u64 present = 0;
  for (const auto& [key, of_key] : content) present += of_key.present;
  CHECK(memory.state.occupied == present && memory.state.erased == removed);
  return later_kind_first;
}

template <class Table>
void all_widths(const char* name) {
  std::mt19937 random(7);
  u64 later_kind_first = 0;
  const auto one_width = [&]<int W>(u32 rounds, u32 tiles) {
    for (u32 round = 0; round < rounds; ++round) {
      by_timestamps<Table, W>(random, tiles);
      later_kind_first += by_launch<Table, W>(random, tiles, false);
      if (round % 4 == 0) by_launch<Table, W>(random, tiles, true);
    }
  };
  one_width.template operator()<1>(40, 4);
  one_width.template operator()<8>(12, 4);
  one_width.template operator()<32>(3, 3);
  CHECK(later_kind_first > 0);
  std::printf("%s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

#define ALL_WIDTHS(...) dg::test::all_widths<__VA_ARGS__>(#__VA_ARGS__)

int main() {
  using namespace dg;
  test::judge_is_strict();
  ALL_WIDTHS(Slab<u32, u32>);
  ALL_WIDTHS(Slab<u64, u64>);
  ALL_WIDTHS(Slab<u32, void>);
  ALL_WIDTHS(Slab<u64, void>);
  ALL_WIDTHS(Supernode<u32, u32>);
  ALL_WIDTHS(Supernode<u64, u64>);
  ALL_WIDTHS(Supernode<u32, void>);
}

/// Growing lists, appended to and read by tiles of every width, against multisets: tiles meet at one
/// key, and the pool and the slots run out.
#include <algorithm>
#include <set>

#include "../lockstep_case.h"

namespace dg::test {
namespace {

/// s_0 = 1 and growth by a tenth: 1, 2, 3, … 11, 13, …
std::vector<u64> bucket_ends(u64 link_slots) {
  std::vector<u64> ends;
  u64 size = 1, end = 0;
  for (u64 level = 0; level < 40; ++level) {
    ends.push_back(end += size + link_slots * (level > 0));
    size = (11 * size + 9) / 10;
  }
  return ends;
}

template <class Key, class Value>
struct ListMemory {
  using Table = GrowingLists<Key, Value>;
  using Model = std::map<Key, std::multiset<Value>>;

  std::vector<u64> ends = bucket_ends(BucketList<Value>::link_slots);
  std::vector<Bucket> lines;
  std::vector<Value> pool;
  u64 taken = 0;
  TableState state{0, 0, 0, 0, {0, 0}, {~0ull, ~0ull}};
  Model model;

  ListMemory(u64 line_count, u64 pool_slots) : lines(line_count), pool(pool_slots) {
    for (auto& line : lines)
      for (auto& word : line.word) word = ~0ull;
  }

  GrowingStorage storage() {
    return {{&taken, pool.size()},
            {ends.data(), ends.size(), BucketList<Value>::link_slots},
            lines.data(),
            pool.data(),
            &state,
            lines.size(),
            0,
            7};
  }

  u64 values() const {
    u64 sum = 0;
    for (const auto& [key, values] : model) sum += values.size();
    return sum;
  }

  /// One launch; gives the rows that found no place.
  template <int W>
  std::vector<u64> append(const std::vector<Key>& keys, const std::vector<Value>& values,
                          const std::vector<u64>* chosen, bool together) {
    const u64 rows = chosen ? chosen->size() : keys.size();
    std::vector<u64> pending(rows);
    state.pending = 0;
    if (together) {
      const u64 segment = 3 * W + 1;
      verb::append_rows<Table, W>({storage(), keys.data(), values.data(),
                                   chosen ? chosen->data() : nullptr, pending.data(), rows, segment,
                                   (rows + segment - 1) / segment});
    } else {
      verb::append<Table, W>({storage(), keys.data(), values.data(),
                              chosen ? chosen->data() : nullptr, nullptr, pending.data(), rows, 0,
                              0});
    }
    pending.resize(state.pending);
    return pending;
  }

  /// What Python does: more room for the rows that are left.
  template <int W>
  u64 insert(const std::vector<Key>& keys, const std::vector<Value>& values, bool together) {
    std::vector<u64> left = append<W>(keys, values, nullptr, together);
    u64 launches = 1;
    for (u64 row = 0; row < keys.size(); ++row) model[keys[row]].insert(values[row]);
    while (true) {
      if (left.empty()) return launches;
      CHECK(++launches < 60);
      taken = std::min<u64>(taken, pool.size());
      pool.resize(pool.size() * 2 + 8);
      if (state.links * 10 > lines.size() * kQuarters * 8 || launches % 4 == 0)
        rehash(2 * lines.size() + 1);
      // Lists of reserved keys are appended to by lanes alone.
      left = append<W>(keys, values, &left, together || launches % 2 == 0);
    }
  }

  void rehash(u64 line_count) {
    ListMemory made(line_count, 0);
    std::copy_n(state.side_value, 2, made.state.side_value);
    for (u32 i = 0; i < 2; ++i) {
      made.state.occupied += GrowingHandle{state.side_value[i]}.count();
      made.state.links += GrowingHandle{state.side_value[i]}.count() > 0;
    }
    GrowingStorage to = storage();
    to.slots = made.lines.data();
    to.lines = line_count;
    to.state = &made.state;
    std::vector<u64> pending(lines.size() * kQuarters);
    verb::move_lists<Table, 1>({storage(), to, pending.data(), lines.size() * kQuarters});
    CHECK(made.state.pending == 0);
    CHECK(made.state.occupied == state.occupied);
    lines = made.lines;
    state = made.state;
  }

  template <int W>
  void check(Key absent) {
    CHECK(state.occupied == values());
    CHECK(state.links == model.size());
    std::vector<Key> asked{absent};
    for (const auto& [key, values] : model) asked.push_back(key);
    const u64 n = asked.size();
    std::vector<u64> handles(n), counts(n);
    std::vector<i64> offsets(n + 1), parts(n + 1), opened(n);
    verb::open_lists<Table, 1>({storage(), asked.data(), handles.data(), opened.data(), n});
    verb::count<Table, W>({storage(), asked.data(), counts.data(), n});
    // The verb looks at the side slots as tables see them that have one value there.
    for (u64 i = 0; i < n; ++i)
      if (is_reserved(asked[i])) counts[i] = static_cast<u64>(opened[i]);
    const i64 part_values = 5;
    for (u64 i = 0; i < n; ++i) {
      const auto found = model.find(asked[i]);
      CHECK(counts[i] == (found == model.end() ? 0 : found->second.size()));
      CHECK(opened[i] == static_cast<i64>(counts[i]));
      offsets[i + 1] = offsets[i] + opened[i];
      parts[i + 1] = parts[i] + (opened[i] > 20 ? (opened[i] + part_values - 1) / part_values : 0);
    }
    const u64 all = static_cast<u64>(offsets[n]);
    std::vector<Value> read(all), gathered(all);
    verb::read_lists<Table, W>({storage(), handles.data(), offsets.data(), read.data(), 20, n});
    verb::read_parts<Table, W>({storage(), handles.data(), offsets.data(), parts.data(),
                                read.data(), static_cast<u64>(part_values), n,
                                static_cast<u64>(parts[n])});
    const std::vector<u64> starts(offsets.begin(), offsets.end());
    verb::gather<Table, W>(
        {storage(), asked.data(), starts.data(), gathered.data(), {pool.data(), pool.data()}, n});
    for (u64 i = 0; i < n; ++i)
      CHECK(is_reserved(asked[i]) ||
            std::equal(read.begin() + offsets[i], read.begin() + offsets[i + 1],
                       gathered.begin() + offsets[i]));
    for (u64 i = 1; i < n; ++i)
      CHECK(model[asked[i]] ==
            std::multiset<Value>(read.begin() + offsets[i], read.begin() + offsets[i + 1]));
    check_items<W>();
  }

  template <int W>
  void check_items() {
    const u64 places = lines.size() * kQuarters, segment = 11;
    const u64 segments = (places + segment - 1) / segment;
    std::vector<u32> counts(segments);
    std::vector<u64> offsets(segments);
    verb::places<Table, W>(
        {storage(), counts.data(), nullptr, nullptr, nullptr, places, segment, segments});
    u64 live = 0;
    for (u64 i = 0; i < segments; ++i) {
      offsets[i] = live;
      live += counts[i];
    }
    std::vector<Key> present;
    for (const auto& [key, values] : model)
      if (!is_reserved(key)) present.push_back(key);
    CHECK(live == present.size());
    std::vector<Key> keys(live);
    verb::items<Table, W>(
        {storage(), nullptr, offsets.data(), keys.data(), nullptr, places, segment, segments});
    std::sort(keys.begin(), keys.end());
    CHECK(keys == present);
    u64 lines_read = 0;
    verb::probes<Table, W>({storage(), keys.data(), &lines_read, live});
    CHECK(lines_read >= live);
  }

  template <int W>
  void erase(const std::vector<Key>& keys) {
    std::vector<u8> erased(keys.size());
    verb::erase_lists<Table, 1>({storage(), keys.data(), erased.data(), keys.size()});
    std::map<Key, u32> told;
    for (u64 row = 0; row < keys.size(); ++row) told[keys[row]] += erased[row];
    for (const auto& [key, times] : told) CHECK(times == model.erase(key));
  }
};

/// An append that is taken back leaves what there was.
template <class Key, class Value, int W>
void taken_back() {
  std::mt19937 random(W);
  ListMemory<Key, Value> lists(24, 4000);
  const std::vector<Key> before = contended_keys<Key>(random, 60, 9);
  lists.template insert<W>(before, std::vector<Value>(before.size(), 1), true);
  const std::vector<Key> keys = contended_keys<Key>(random, 60, 12);
  std::vector<u64> handles(keys.size());
  std::vector<i64> counts(keys.size());
  using Table = GrowingLists<Key, Value>;
  verb::open_lists<Table, 1>(
      {lists.storage(), keys.data(), handles.data(), counts.data(), keys.size()});
  const TableState kept = lists.state;
  const std::vector<Value> values(keys.size(), 2);
  lists.template append<W>(keys, values, nullptr, true);
  verb::restore_lists<Table, 1>(
      {lists.storage(), keys.data(), handles.data(), nullptr, keys.size()});
  lists.state.occupied = kept.occupied;
  lists.state.links = kept.links;
  lists.template check<W>(Key{40});
  lists.template insert<W>(keys, values, true);
  lists.template check<W>(Key{40});
}

template <class Key, class Value, int W>
void contended(std::mt19937& random, bool together, u64 line_count, u64 pool_slots, Key range) {
  ListMemory<Key, Value> lists(line_count, pool_slots);
  Value next = 1;
  for (u32 batch = 0; batch < 3; ++batch) {
    const std::vector<Key> keys = contended_keys<Key>(random, 90, range);
    std::vector<Value> values(keys.size());
    for (auto& value : values) value = next++;
    const u64 launches = lists.template insert<W>(keys, values, together);
    // A pool of one slot runs dry inside of a launch.
    if (batch == 0 && pool_slots == 1) CHECK(launches > 1);
    lists.template check<W>(range + 5);
    lists.template erase<W>(contended_keys<Key>(random, 8, range));
    lists.template check<W>(range + 5);
  }
}

/// All rows one key, in one long run.
template <class Key, class Value, int W>
void hot(bool together) {
  ListMemory<Key, Value> lists(3, 2000);
  const std::vector<Key> keys(260, Key{3});
  std::vector<Value> values(keys.size());
  for (u64 row = 0; row < values.size(); ++row) values[row] = static_cast<Value>(row);
  CHECK(lists.template insert<W>(keys, values, together) == 1);
  CHECK(lists.state.links == 1);
  lists.template check<W>(4);
}

/// Multiplicities 1, 2, 8, 64 and 512 take 1, 3, 10, 66 and 560 slots in 1, 2, 4, 11 and 26 buckets.
template <class Value>
void sizes() {
  constexpr u64 link = BucketList<Value>::link_slots;
  const u64 wanted[][3] = {{1, 1, 1}, {2, 3, 2}, {8, 10, 4}, {64, 66, 11}, {512, 560, 26}};
  for (const auto& [count, slots, buckets] : wanted) {
    ListMemory<u32, Value> lists(2, 4000);
    for (u64 row = 0; row < count; ++row)
      lists.template insert<1>({5}, {static_cast<Value>(row)}, row % 2 == 0);
    CHECK(lists.taken == slots + (buckets - 1) * link);
  }
}

template <class Key, class Value, int W>
void width() {
  std::mt19937 random(W);
  for (const bool together : {true, false}) {
    contended<Key, Value, W>(random, together, 24, 4000, 12);
    contended<Key, Value, W>(random, together, 2, 1, 40);
    hot<Key, Value, W>(together);
  }
  taken_back<Key, Value, W>();
}

template <class Key, class Value>
void widths(const char* name) {
  lockstep::tiles = 8;
  width<Key, Value, 1>();
  lockstep::tiles = 3;
  width<Key, Value, 8>();
  std::printf("growing lists %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::sizes<u32>();
  test::sizes<u64>();
  test::widths<u32, u32>("u32 u32");
  test::widths<u64, u64>("u64 u64");
  test::widths<u32, u64>("u32 u64");
  test::widths<u64, u32>("u64 u32");
  lockstep::tiles = 4;
  test::width<u32, u32, 4>();
  lockstep::tiles = 2;
  test::width<u32, u32, 32>();
  std::printf("growing lists, narrow and wide tiles: passed\n");
}

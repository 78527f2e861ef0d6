/// Runs and lists, appended to and read by tiles of every width, against vectors.
#include <algorithm>

#include "lockstep_case.h"
// Behind the case, which says that lanes are in lockstep.
#include "device/auto_lists.cuh"
#include "device/view.cuh"

namespace dg::test {
namespace {

/// Sizes that grow by half.
std::vector<u64> growth_table(u64 first, u64 link_slots, u64 levels) {
  std::vector<u64> slots_end;
  u64 size = first, end = 0;
  for (u64 level = 0; level < levels; ++level) {
    slots_end.push_back(end += size + link_slots * (level > 0));
    size += (size + 1) / 2;
  }
  return slots_end;
}

/// Numbers and then sums; gives the last sum.
i64 sum_up(std::vector<i64>& numbers, i64 first) {
  numbers[0] = first;
  for (u64 i = 1; i < numbers.size(); ++i) numbers[i] += numbers[i - 1];
  return numbers.back();
}

/// What Python holds. Some values look like numbers of lists.
template <class Value, class Entry, int W>
struct Lists {
  std::vector<u64> slots_end = growth_table(2, BucketList<Value>::link_slots, 6);
  std::vector<Value> pool;
  std::vector<ListRecord> records;
  std::vector<u64> handles;
  std::vector<u32> starts;
  std::vector<Entry> entries;
  std::vector<u8> found;
  std::vector<std::vector<Value>> model;
  std::mt19937 random{W};
  Value next = 1;

  explicit Lists(u64 keys) : entries(keys), found(keys), model(keys) {}

  ListStorage storage() {
    return {{slots_end.data(), slots_end.size(), BucketList<Value>::link_slots},
            {20, 400, sizeof(Entry), sizeof(Value), starts.data(), 4,
             starts.empty() ? 0 : starts.size() - 1, handles.data()},
            pool.data(),
            records.data()};
  }

  /// Random runs, of at least one value, for `keys`.
  void make_runs(const std::vector<u64>& keys, u64 longest, std::vector<i64>& offsets,
                 std::vector<Value>& values) {
    offsets.assign(1, 0);
    for (const u64 key : keys) {
      for (u64 i = random() % longest + 1; i-- > 0;) {
        model[key].push_back(next);
        values.push_back(next++);
      }
      offsets.push_back(static_cast<i64>(values.size()));
    }
  }

  ListMoveArgs move(const std::vector<i64>& begins, const std::vector<u64>& stretches,
                    std::vector<Value>& values, const void* from = nullptr) {
    const u64 rows = values.size(), segment = 37;
    return {storage(), begins.data(), stretches.data(),
            from,      values.data(), stretches.size(),
            rows,      segment,       (rows + segment - 1) / segment};
  }

  std::vector<u64> open(const std::vector<Entry>& of, const std::vector<u8>& there) {
    std::vector<u64> opened(of.size());
    list_open({storage(), of.data(), there.data(), opened.data(), of.size()});
    return opened;
  }

  void settle(const std::vector<u64>& keys, u64 longest, bool packed) {
    const u64 n = keys.size(), segment = 13, segments = (n + segment - 1) / segment;
    std::vector<i64> offsets;
    std::vector<Value> values;
    make_runs(keys, longest, offsets, values);
    const i64* const runs = longest == 1 ? nullptr : offsets.data();
    std::vector<i64> lists(segments + 1), places(segments + 1);
    list_weigh<W>({storage(), runs, values.data(), lists.data() + 1, places.data() + 1, n, segment,
                   segments});
    const i64 listed = sum_up(lists, 0), listed_values = sum_up(places, 0);
    std::vector<i64> begins(static_cast<u64>(listed) + 1, listed_values);
    std::vector<u64> stretches(static_cast<u64>(listed));
    std::vector<Entry> made(n);
    u64 recorded = 0;
    starts.resize(packed ? begins.size() : offsets.size());
    list_settle<W>({storage(), runs, values.data(), made.data(), packed ? lists.data() : nullptr,
                    packed ? places.data() : nullptr, packed ? begins.data() : nullptr,
                    packed ? stretches.data() : nullptr, &recorded, n, segment, segments});
    CHECK(recorded == 0);
    const auto& firsts = packed ? begins : offsets;
    for (u64 i = 0; i < firsts.size(); ++i) starts[i] = static_cast<u32>(firsts[i]);
    pool = values;
    if (packed) {
      std::vector<Value> chosen(static_cast<u64>(listed_values));
      list_gather<Value, W>(move(begins, stretches, chosen));
      pool = chosen;
    }
    store(keys, made);
  }

  void store(const std::vector<u64>& keys, const std::vector<Entry>& made) {
    for (u64 run = 0; run < keys.size(); ++run) {
      entries[keys[run]] = made[run];
      found[keys[run]] = 1;
    }
  }

  void append(const std::vector<u64>& keys, u64 longest) {
    const u64 n = keys.size();
    std::vector<i64> offsets, slots(n + 1), new_records(n + 1), places(n + 1), numbers(n + 1);
    std::vector<Value> values;
    make_runs(keys, longest, offsets, values);
    std::vector<Entry> of_runs;
    std::vector<u8> there;
    for (const u64 key : keys) {
      of_runs.push_back(entries[key]);
      there.push_back(found[key]);
    }
    const std::vector<u64> opened = open(of_runs, there);
    list_plan({storage(), opened.data(), of_runs.data(), offsets.data(), values.data(),
               slots.data() + 1, new_records.data() + 1, places.data() + 1, numbers.data() + 1, n});
    pool.resize(static_cast<u64>(sum_up(slots, static_cast<i64>(pool.size()))));
    records.resize(static_cast<u64>(sum_up(new_records, static_cast<i64>(records.size()))));
    handles.resize(static_cast<u64>(sum_up(numbers, static_cast<i64>(handles.size()))));
    const i64 pieces = sum_up(places, 0);
    std::vector<i64> begins(static_cast<u64>(pieces) + 1, static_cast<i64>(values.size()));
    std::vector<u64> stretches(static_cast<u64>(pieces), ~0ull);
    list_append<Value>({storage(),
                        {begins.data(), stretches.data()},
                        opened.data(),
                        of_runs.data(),
                        offsets.data(),
                        values.data(),
                        slots.data(),
                        new_records.data(),
                        places.data(),
                        numbers.data(),
                        n});
    list_scatter<Value, W>(move(begins, stretches, values));
    store(keys, of_runs);
  }

  void check() {
    const std::vector<u64> opened = open(entries, found);
    const u64 n = opened.size(), segment = 43, segments = (n + segment - 1) / segment;
    std::vector<i64> offsets(n + 1), places(n + 1), counts(n);
    std::vector<i64> value_sums(segments + 1), piece_sums(segments + 1);
    list_sum<W>({storage(), opened.data(), value_sums.data() + 1, piece_sums.data() + 1, n, segment,
                 segments});
    std::vector<Value> read(static_cast<u64>(offsets[n] = sum_up(value_sums, 0)));
    places[n] = sum_up(piece_sums, 0);
    list_offsets<W>({storage(), opened.data(), value_sums.data(), piece_sums.data(), offsets.data(),
                     places.data(), n, segment, segments});
    list_count({storage(), opened.data(), counts.data(), n});
    for (u64 key = 0; key < n; ++key) CHECK(counts[key] == offsets[key + 1] - offsets[key]);
    if (records.empty()) {
      list_gather<Value, W>(move(offsets, opened, read, entries.data()));
    } else {
      const i64 pieces = places[n];
      std::vector<i64> begins(static_cast<u64>(pieces) + 1, static_cast<i64>(read.size()));
      std::vector<u64> stretches(static_cast<u64>(pieces));
      list_locate<Value>({storage(),
                          {begins.data(), stretches.data()},
                          opened.data(),
                          offsets.data(),
                          places.data(),
                          n});
      list_gather<Value, W>(move(begins, stretches, read, entries.data()));
    }
    for (u64 key = 0; key < n; ++key)
      CHECK(model[key] ==
            std::vector<Value>(read.begin() + offsets[key], read.begin() + offsets[key + 1]));
  }
};

/// Kernels of users count the values of keys, which a table maps to entries; two of them are reserved.
template <int W, class Lists, class Entry>
void check_view(Lists& lists, const std::vector<Entry>& entries) {
  TableMemory<u32, Entry> table(40);
  const auto key_of = [](u64 key) { return static_cast<u32>(key - 2); };
  std::vector<u32> keys;
  std::vector<Entry> stored;
  for (u64 key = 0; key < entries.size(); ++key) {
    if (!lists.found[key]) continue;
    keys.push_back(key_of(key));
    stored.push_back(entries[key]);
  }
  open_insert<u32, Entry, 8>(
      {table.storage, keys.data(), stored.data(), nullptr, nullptr, keys.size(), ~0ull, false});
  CHECK(table.state.occupied == keys.size());
  const device::View<device::AutoLists<u32, Entry>> view{{table.storage, lists.storage()}};
  std::vector<u64> counts(entries.size(), ~0ull);
  for_each_lane<W>(counts.size(), [&](auto tile, u64 row, bool asked) {
    serve_lanes(tile, asked, [&](u32 source) {
      const u64 count = view.count(tile, key_of(tile.shuffle(row, source)));
      if (tile.lane() == source) counts[row] = count;
    });
  });
  for (u64 key = 0; key < counts.size(); ++key) CHECK(counts[key] == lists.model[key].size());
}

std::vector<u64> some_keys(std::mt19937& random, u64 n, u64 of) {
  std::vector<u64> keys(of);
  for (u64 i = 0; i < of; ++i) keys[i] = i;
  std::shuffle(keys.begin(), keys.end(), random);
  keys.resize(n);
  return keys;
}

template <class Value, class Entry, int W>
void appends() {
  for (const bool packed : {false, true}) {
    Lists<Value, Entry, W> lists(60);
    lists.settle(some_keys(lists.random, 30, 60), 1, true);
    lists.check();
    Lists<Value, Entry, W> longer(60);
    longer.settle(some_keys(longer.random, 30, 60), packed ? 3 : 70, packed);
    longer.check();
    for (const u64 longest : {1, 1, 3, 100, 1}) {
      longer.append(some_keys(longer.random, 20, 60), longest);
      longer.check();
    }
    check_view<W>(longer, longer.entries);
  }
}

/// A run that is too long for a handle, and one that just fits; no values are touched.
void long_runs() {
  const i64 most = ListHandle::longest_run;
  const std::vector<i64> starts{0, most, 2 * most + 1, 2 * most + 3};
  std::vector<u32> entries(3);
  std::vector<u64> handles(2), opened(3);
  std::vector<i64> counts(3);
  std::vector<ListRecord> records(2);
  std::vector<u64> slots_end = growth_table(1, 1, 3);
  ListStorage storage{{slots_end.data(), 3, 1},
                      {7, 100, 4, 4, starts.data(), 8, 3, handles.data()},
                      nullptr,
                      records.data()};
  u64 recorded = 0;
  list_settle<1>({storage, starts.data(), nullptr, entries.data(), nullptr, nullptr, nullptr,
                  nullptr, &recorded, 3, 3, 1});
  CHECK(recorded == 1);
  list_open({storage, entries.data(), nullptr, opened.data(), 3});
  list_count({storage, opened.data(), counts.data(), 3});
  for (u64 run = 0; run < 3; ++run) {
    CHECK(counts[run] == starts[run + 1] - starts[run]);
    CHECK(static_cast<i64>(ListHandle{opened[run]}.open(records.data()).start) == starts[run]);
  }
}

template <class Value, class Entry>
void all_widths(const char* name) {
  for_each_width([]<int W>() { appends<Value, Entry, W>(); });
  std::printf("bucket list %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::long_runs();
  test::all_widths<u32, u32>("u32");
  test::all_widths<u32, u64>("u32 in wide entries");
  test::all_widths<u64, u64>("u64");
}

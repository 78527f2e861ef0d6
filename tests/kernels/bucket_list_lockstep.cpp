/// Runs and lists, appended to and read by tiles of every width, against vectors.
#include <algorithm>

#include "lockstep_case.h"

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

/// What Python holds.
template <class Value, int W>
struct Lists {
  std::vector<u64> slots_end = growth_table(2, BucketList<Value>::link_slots, 6);
  std::vector<Value> pool;
  std::vector<ListRecord> records;
  std::vector<u64> handles;
  std::vector<std::vector<Value>> model;
  std::mt19937 random{W};
  Value next = 1;

  explicit Lists(u64 keys) : handles(keys, ~0ull), model(keys) {}

  ListStorage storage() {
    return {{slots_end.data(), slots_end.size(), BucketList<Value>::link_slots},
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
                    std::vector<Value>& values) {
    const u64 rows = values.size(), segment = 37;
    return {storage(),        begins.data(), stretches.data(), values.data(),
            stretches.size(), rows,          segment,          (rows + segment - 1) / segment};
  }

  void settle(const std::vector<u64>& keys, u64 longest) {
    std::vector<i64> offsets;
    make_runs(keys, longest, offsets, pool);
    std::vector<u64> made(keys.size());
    u64 recorded = 0;
    list_settle(
        {storage(), longest == 1 ? nullptr : offsets.data(), made.data(), &recorded, keys.size()});
    CHECK(recorded == 0);
    for (u64 run = 0; run < keys.size(); ++run) handles[keys[run]] = made[run];
  }

  void append(const std::vector<u64>& keys, u64 longest) {
    const u64 n = keys.size();
    std::vector<i64> offsets, slots(n + 1), new_records(n + 1), places(n + 1);
    std::vector<Value> values;
    make_runs(keys, longest, offsets, values);
    std::vector<u64> of_runs;
    for (const u64 key : keys) of_runs.push_back(handles[key]);
    list_plan({storage(), of_runs.data(), offsets.data(), slots.data() + 1, new_records.data() + 1,
               places.data() + 1, n});
    pool.resize(static_cast<u64>(sum_up(slots, static_cast<i64>(pool.size()))));
    records.resize(static_cast<u64>(sum_up(new_records, static_cast<i64>(records.size()))));
    const i64 pieces = sum_up(places, 0);
    std::vector<i64> begins(static_cast<u64>(pieces) + 1, static_cast<i64>(values.size()));
    std::vector<u64> stretches(static_cast<u64>(pieces), ~0ull);
    list_append<Value>({storage(),
                        {begins.data(), stretches.data()},
                        of_runs.data(),
                        offsets.data(),
                        slots.data(),
                        new_records.data(),
                        places.data(),
                        n});
    list_scatter<Value, W>(move(begins, stretches, values));
    for (u64 run = 0; run < n; ++run) handles[keys[run]] = of_runs[run];
  }

  void check() {
    const u64 n = handles.size(), segment = 43, segments = (n + segment - 1) / segment;
    std::vector<i64> offsets(n + 1), places(n + 1), counts(n);
    std::vector<i64> value_sums(segments + 1), piece_sums(segments + 1);
    list_sum<W>({storage(), handles.data(), value_sums.data() + 1, piece_sums.data() + 1, n,
                 segment, segments});
    std::vector<Value> found(static_cast<u64>(offsets[n] = sum_up(value_sums, 0)));
    places[n] = sum_up(piece_sums, 0);
    list_offsets<W>({storage(), handles.data(), value_sums.data(), piece_sums.data(),
                     offsets.data(), places.data(), n, segment, segments});
    list_count({storage(), handles.data(), counts.data(), n});
    for (u64 key = 0; key < n; ++key) CHECK(counts[key] == offsets[key + 1] - offsets[key]);
    if (records.empty()) {
      list_gather<Value, W>(move(offsets, handles, found));
    } else {
      const i64 pieces = places[n];
      std::vector<i64> begins(static_cast<u64>(pieces) + 1, static_cast<i64>(found.size()));
      std::vector<u64> stretches(static_cast<u64>(pieces));
      list_locate<Value>({storage(),
                          {begins.data(), stretches.data()},
                          handles.data(),
                          offsets.data(),
                          places.data(),
                          n});
      list_gather<Value, W>(move(begins, stretches, found));
    }
    for (u64 key = 0; key < n; ++key)
      CHECK(model[key] ==
            std::vector<Value>(found.begin() + offsets[key], found.begin() + offsets[key + 1]));
  }
};

std::vector<u64> some_keys(std::mt19937& random, u64 n, u64 of) {
  std::vector<u64> keys(of);
  for (u64 i = 0; i < of; ++i) keys[i] = i;
  std::shuffle(keys.begin(), keys.end(), random);
  keys.resize(n);
  return keys;
}

template <class Value, int W>
void appends() {
  Lists<Value, W> lists(60);
  lists.settle(some_keys(lists.random, 30, 60), 1);
  lists.check();
  Lists<Value, W> longer(60);
  longer.settle(some_keys(longer.random, 30, 60), 70);
  longer.check();
  for (const u64 longest : {1, 1, 3, 100, 1}) {
    longer.append(some_keys(longer.random, 20, 60), longest);
    longer.check();
  }
}

/// A run that is too long for a handle, and one that just fits; no values are touched.
void long_runs() {
  const i64 most = ListHandle::longest_run;
  const std::vector<i64> starts{0, most, 2 * most + 1, 2 * most + 2};
  std::vector<u64> handles(3);
  std::vector<i64> counts(3);
  std::vector<ListRecord> records(2);
  std::vector<u64> slots_end = growth_table(1, 1, 3);
  ListStorage storage{{slots_end.data(), 3, 1}, nullptr, records.data()};
  u64 recorded = 0;
  list_settle({storage, starts.data(), handles.data(), &recorded, 3});
  CHECK(recorded == 1);
  list_count({storage, handles.data(), counts.data(), 3});
  for (u64 run = 0; run < 3; ++run) {
    CHECK(counts[run] == starts[run + 1] - starts[run]);
    CHECK(static_cast<i64>(ListHandle{handles[run]}.start(records.data())) == starts[run]);
  }
}

template <class Word>
void all_widths(const char* name) {
  for_each_width([]<int W>() { appends<Word, W>(); });
  std::printf("bucket list %s: passed\n", name);
}

}  // namespace
}  // namespace dg::test

int main() {
  using namespace dg;
  test::long_runs();
  test::all_widths<u32>("u32");
  test::all_widths<u64>("u64");
}

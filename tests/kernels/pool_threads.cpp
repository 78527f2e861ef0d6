/// The CPU's thread pool: launches from several threads at once, another size in between, a forked
/// child.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "host/pool.h"
#include "launch/open.cuh"

namespace dg {
namespace {

/// Inserts keys of its own into a table of its own, and finds them.
bool insert_and_find(u64 n, u32 salt) {
  const u64 buckets = 2048;  // 16,384 slots for 4,000 keys
  std::vector<u64> words(buckets * 8 + 8, ~0ull);
  std::vector<u32> overflow(buckets / 4, 0);
  auto* aligned = words.data() + (8 - reinterpret_cast<u64>(words.data()) / 8 % 8) % 8;
  OpenState state{0, 0, 0, 0, {0, 0}, {~0ull, ~0ull}};
  const OpenStorage table{aligned, nullptr, &state, overflow.data(), buckets, 5, salt};
  std::vector<u32> keys(n), values(n), out(n);
  std::vector<u8> fresh(n), found(n);
  for (u64 i = 0; i < n; ++i) {
    keys[i] = static_cast<u32>(i % (n / 2)) * 3 + salt;
    values[i] = keys[i] + 1;
  }
  open_insert<u32, u32, 1>({table, keys.data(), values.data(), fresh.data(), nullptr, n, ~0ull, 1});
  open_find<u32, u32, 1>({table, keys.data(), out.data(), found.data(), n, 0});
  u64 created = 0;
  for (const u8 each : fresh) created += each;
  return state.occupied == n / 2 && created == n / 2 && out == values;
}

bool many_callers() {
  bool passed[4] = {};
  std::vector<std::thread> callers;
  for (u32 i = 0; i < 4; ++i) {
    callers.emplace_back([&passed, i] {
      passed[i] = true;
      for (u32 round = 0; round < 5; ++round)
        passed[i] = passed[i] && insert_and_find(8000, 100 * i + round);
    });
  }
  for (unsigned count : {1u, 4u, 3u}) set_threads(count);
  for (auto& caller : callers) caller.join();
  return passed[0] && passed[1] && passed[2] && passed[3];
}

bool forked_child() {
  const pid_t child = fork();
  if (child == 0) _exit(insert_and_find(8000, 7) ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace
}  // namespace dg

int main(int, char** arguments) {
  dg::set_threads(3);
  const bool forks = arguments[1] && !std::strcmp(arguments[1], "fork");
  const bool passed =
      forks ? dg::insert_and_find(8000, 1) && dg::forked_child() : dg::many_callers();
  dg::set_threads(1);
  std::printf("pool %s: %s\n", forks ? "fork" : "callers", passed ? "passed" : "FAILED");
  return passed ? 0 : 1;
}

/// What the lockstep harness must catch. The script expects this program to fail, and to say why:
/// "vote", "slot" and "step" are data races for ThreadSanitizer, "branch", "count" and "barrier"
/// divergent collectives, "fields" a struct whose list of fields leaves one out.
#include <cstring>

#include "lockstep_case.h"

namespace dg {
namespace {

/// A vote orders no memory: the other lanes need Tile::sync() before they read.
void race_over_a_vote() {
  u64 word = 0, sum = 0;
  lockstep::tiles = 1;
  lockstep::for_each_tile<4>(20, [&](auto tile, u64 row) {
    if (tile.lane() == 0) word = row;
    tile.any(true);
    if (tile.lane() == 3) sum += word;
    tile.sync();
  });
  std::printf("sum %llu\n", sum);
}

/// Two tiles take the first empty slot without a compare-and-swap.
void race_for_a_slot() {
  u32 slots[64];
  std::memset(slots, 0xff, sizeof slots);
  lockstep::tiles = 4;
  lockstep::for_each_tile<2>(64, [&](auto tile, u64 row) {
    for (u32 slot = 0; slot < 64; ++slot) {
      if (tile.any(slots[slot] == Mark<u32>::empty)) {
        if (tile.lane() == 0) slots[slot] = static_cast<u32>(row);
        return;
      }
    }
  });
}

/// A collective in a branch that one lane does not take.
void divergence_by_branch() {
  lockstep::for_each_tile<8>(10, [&](auto tile, u64) {
    if (tile.lane() != 5) tile.sync();
    tile.ballot(true);
  });
}

/// Lanes that go round a loop unequally often.
void divergence_by_count() {
  lockstep::for_each_tile<4>(10, [&](auto tile, u64) {
    for (u32 i = 0; i <= tile.lane(); ++i) tile.ballot(true);
  });
}

template <class>
struct Shared {
  u32 word;
};

/// The lanes of a tile have met, those of the block have not.
void race_over_a_step() {
  u32 sum = 0;
  lockstep::tiles = 1;
  lockstep::for_each_block<4, Shared>(20, [&](auto block, auto& shared, u64 segment) {
    if (block.thread() == 0) shared.word = static_cast<u32>(segment);
    block.tile().sync();
    if (block.thread() == 3) sum += shared.word;
    block.sync();
  });
  std::printf("sum %u\n", sum);
}

/// One lane of a tile is at another barrier than the rest.
void divergence_at_a_barrier() {
  lockstep::for_each_block<4, Shared>(10, [&](auto block, auto&, u64) {
    if (block.thread() == 1)
      block.tile().sync();
    else
      block.sync();
  });
}

struct Inner {
  u64 word;
  u32 half;

  DG_FIELDS(word, half)
};

struct Whole {
  Inner inner;
  u32 half;
  u64 sides[2];
  const void* keys;
  u8 flag;

  DG_FIELDS(inner, half, sides, keys, flag)
};

struct LeavesOneOut {
  const void* keys;
  u64 rows;
  u64 n;

  DG_FIELDS(keys, n)
};

template <class Struct>
bool complete() {
  return dg::complete(fields_of<Struct>(), sizeof(Struct), alignof(Struct));
}

/// The extension does not load then.
void fields_left_out() {
  CHECK(complete<Inner>() && complete<Whole>());
  CHECK(complete<LeavesOneOut>());
}

}  // namespace
}  // namespace dg

int main(int, char** arguments) {
  const char* fault = arguments[1];
  if (!std::strcmp(fault, "vote")) dg::race_over_a_vote();
  if (!std::strcmp(fault, "slot")) dg::race_for_a_slot();
  if (!std::strcmp(fault, "step")) dg::race_over_a_step();
  if (!std::strcmp(fault, "barrier")) dg::divergence_at_a_barrier();
  if (!std::strcmp(fault, "branch")) dg::divergence_by_branch();
  if (!std::strcmp(fault, "count")) dg::divergence_by_count();
  if (!std::strcmp(fault, "fields")) dg::fields_left_out();
}

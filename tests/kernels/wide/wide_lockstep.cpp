/// Keys of 16 bytes: insert, find, erase, and values that are combined and folded, by tiles of every width.
#include "../combine_case.h"
#include "../open_case.h"

int main() {
  using namespace dg;
  std::printf("keys of 16 bytes are %s\n", DG_KEY_SWAP ? "swapped" : "claimed");
  lockstep::tiles = 2;
  test::late_answers<u128, void, 8>();
  test::late_answers<u128, u32, 16>();
  std::printf("late answers: passed\n");
  test::all_widths<u128, void>("u128");
  test::all_widths<u128, u64>("u128 -> u64");
  test::combining::all_widths<u128, u64>("u128 -> u64");
}

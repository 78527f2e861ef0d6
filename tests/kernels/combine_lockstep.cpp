/// Values of equal keys that are combined, of keys of 4 and 8 bytes.
#include "combine_case.h"

int main() {
  using namespace dg;
  namespace test = dg::test::combining;
  test::all_widths<u32, u32>("u32 -> u32");
  test::all_widths<u32, u64>("u32 -> u64");
  test::all_widths<u64, u32>("u64 -> u32");
  test::all_widths<u64, u64>("u64 -> u64");
}

/// The compiled kernels, in parts that cores compile at the same time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/fields.cuh"

namespace dg {

struct StructLayout {
  std::size_t nbytes;
  std::size_t alignment;
  std::vector<Field> fields;
};

enum class Taker { lane, tile, block };

struct Instance {
  const char* files[2];
  const char* expression;
  u32 width;
  Taker taker;
  std::string (*args)();
  std::size_t args_nbytes;
  StructLayout (*layout)();
  void (*run)(const void* args);
};

/// Adds the rows of a part of instances.inc, and the structs that only device memory holds.
template <int part>
void add_part(std::vector<Instance>& rows,
              std::vector<std::pair<std::string, StructLayout>>& structs);

}  // namespace dg

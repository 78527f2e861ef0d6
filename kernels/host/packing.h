/// What packing.cpp adds to the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace dg {

void add_packing(nanobind::module_& module);

}  // namespace dg

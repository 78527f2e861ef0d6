/// What references.cpp adds to the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace dg {

void add_references(nanobind::module_& module);

}  // namespace dg

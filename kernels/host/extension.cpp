/// dgpuhash._native: the kernels on the CPU.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "host/layouts.h"
#include "host/pool.h"
#include "launch/bloom.cuh"
#include "launch/bucket_list.cuh"
#include "launch/contents.cuh"
#include "launch/group_runs.cuh"
#include "launch/groups.cuh"
#include "launch/hash.cuh"
#include "launch/join.cuh"
#include "launch/limits.cuh"
#include "launch/multisplit.cuh"
#include "launch/open.cuh"
#include "launch/partition.cuh"
#include "launch/reduce.cuh"
#include "launch/region.cuh"
#include "launch/sample.cuh"

namespace nb = nanobind;

namespace dg {
namespace {

struct Instance {
  const char* expression;
  const char* file;
  const char* args;
  std::size_t args_nbytes;
  void (*run)(const void* args);
};

template <class Args>
void call(void (*kernel)(Args), const void* bytes) {
  Args args;
  std::memcpy(&args, bytes, sizeof args);
  kernel(args);
}

template <auto kernel>
void run(const void* bytes) {
  call(kernel, bytes);
}

#define DG_UNPACK(...) __VA_ARGS__
#define DG_ROW(Args, file, expression, function) \
  {expression, file, #Args, sizeof(Args), &run<&DG_UNPACK function>},
constexpr Instance kInstances[] = {
#include "launch/instances.inc"
};
#undef DG_ROW
#undef DG_UNPACK

const Instance& instance(const std::string& expression) {
  static const auto by_name = [] {
    std::unordered_map<std::string, const Instance*> made;
    for (const auto& each : kInstances) made.emplace(each.expression, &each);
    return made;
  }();
  const auto found = by_name.find(expression);
  if (found == by_name.end()) throw nb::key_error(("no kernel " + expression).c_str());
  return *found->second;
}

void launch(const std::string& expression, const nb::bytes& args, u64 n) {
  const Instance& called = instance(expression);
  if (args.size() != called.args_nbytes)
    throw nb::value_error((expression + " takes a " + called.args + " of " +
                           std::to_string(called.args_nbytes) + " bytes, not " +
                           std::to_string(args.size()))
                              .c_str());
  if (n == 0) return;
  const void* bytes = args.data();
  nb::gil_scoped_release released;
  called.run(bytes);
}

/// NumPy's own ways to an address make Python objects, and take ten times as long.
std::uintptr_t address(const nb::handle& array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_STRIDES) != 0) throw nb::python_error();
  const auto found = reinterpret_cast<std::uintptr_t>(view.buf);
  PyBuffer_Release(&view);
  return found;
}

std::vector<std::tuple<std::string, std::string>> instances() {
  std::vector<std::tuple<std::string, std::string>> made;
  for (const auto& each : kInstances) made.emplace_back(each.expression, each.file);
  return made;
}

nb::tuple struct_layout(const std::string& name) {
  for (const auto& layout : kLayouts) {
    if (name != layout.name) continue;
    nb::list fields;
    for (const auto& field : layout.fields)
      fields.append(nb::make_tuple(field.name, field.offset, field.nbytes));
    return nb::make_tuple(fields, layout.nbytes);
  }
  throw nb::key_error(("no struct " + name).c_str());
}

std::vector<std::string> structs() {
  std::vector<std::string> made;
  for (const auto& layout : kLayouts) made.emplace_back(layout.name);
  return made;
}

}  // namespace
}  // namespace dg

NB_MODULE(_native, module) {
  module.doc() = "The kernels on the CPU";
  module.def("launch", &dg::launch, nb::arg("expression"), nb::arg("args"), nb::arg("n"),
             "Run an instance with its packed struct of arguments; the GIL is released.");
  module.def("address", &dg::address, nb::arg("array"), "Where an array's first element stands.");
  module.def("instances", &dg::instances, "C++ name and file of every kernel instance.");
  module.def("structs", &dg::structs, "Names of the structs of arguments.");
  module.def("struct_layout", &dg::struct_layout, nb::arg("name"),
             "([(field, offset, bytes)], bytes) of a struct of arguments.");
  module.def(
      "set_threads", &dg::set_threads, nb::arg("n"),
      "Threads of later launches; 0: DGPUHASH_NUM_THREADS or the CPUs that the process may use.");
  module.def("threads", &dg::threads, "Threads that a launch uses.");
}

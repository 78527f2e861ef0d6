/// dgpuhash._native: the kernels on the CPU.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/packing.h"
#include "host/pool.h"
#include "host/references_module.h"
#include "host/rows.h"
#include "host/sequences_module.h"

namespace nb = nanobind;

namespace dg {
namespace {

/// The rows of all parts, and the layouts of all structs by their names.
class Kernels {
 public:
  Kernels() {
    std::vector<std::pair<std::string, StructLayout>> structs;
    add_part<1>(rows_, structs);
    add_part<2>(rows_, structs);
    add_part<3>(rows_, structs);
    add_part<4>(rows_, structs);
    for (const auto& each : rows_) {
      by_name_.emplace(each.expression, &each);
      add(each.args(), each.layout());
    }
    for (auto& [name, layout] : structs) add(name, std::move(layout));
  }

  const std::vector<Instance>& rows() const { return rows_; }

  const Instance& row(const std::string& expression) const {
    const auto found = by_name_.find(expression);
    if (found == by_name_.end()) throw nb::key_error(("no kernel " + expression).c_str());
    return *found->second;
  }

  const StructLayout& layout(const std::string& name) const {
    const auto found = structs_.find(name);
    if (found == structs_.end()) throw nb::key_error(("no struct " + name).c_str());
    return found->second;
  }

 private:
  void add(const std::string& name, StructLayout layout) {
    const auto [at, is_new] = structs_.emplace(name, std::move(layout));
    if (!is_new) return;
    const StructLayout& made = at->second;
    if (!complete(made.fields, made.nbytes, made.alignment))
      throw std::runtime_error("DG_FIELDS of " + name +
                               " leaves fields out, or their order is another");
    // Structs within have structs of their own.
    for (const Field& field : made.fields)
      if (field.of) add(field.type, {field.nbytes / field.count, field.alignment, field.of()});
  }

  std::vector<Instance> rows_;
  std::unordered_map<std::string, const Instance*> by_name_;
  std::map<std::string, StructLayout> structs_;
};

const Kernels& kernels() {
  static const Kernels made;
  return made;
}

void launch(const std::string& expression, const nb::bytes& args, u64 n) {
  const Instance& called = kernels().row(expression);
  if (args.size() != called.args_nbytes)
    throw nb::value_error((expression + " takes a " + called.args() + " of " +
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

nb::list instances() {
  constexpr const char* takers[] = {"lane", "tile", "block"};
  nb::list made;
  for (const auto& each : kernels().rows()) {
    nb::list files;
    for (const char* file : each.files)
      if (file) files.append(file);
    made.append(nb::make_tuple(each.expression, nb::tuple(files), each.width,
                               takers[static_cast<int>(each.taker)], each.args()));
  }
  return made;
}

nb::tuple struct_layout(const std::string& name) {
  const StructLayout& layout = kernels().layout(name);
  nb::list fields;
  for (const auto& field : layout.fields)
    fields.append(nb::make_tuple(field.name, field.offset, field.count,
                                 field.of ? field.type : std::string(1, field.format)));
  return nb::make_tuple(layout.nbytes, fields);
}

}  // namespace
}  // namespace dg

NB_MODULE(_native, module) {
  module.doc() = "The kernels on the CPU";
  // Packers are kept with their kernels until the process ends.
  nb::set_leak_warnings(false);
  dg::kernels();
  module.def("launch", &dg::launch, nb::arg("expression"), nb::arg("args"), nb::arg("n"),
             "Run an instance with its packed struct of arguments; the GIL is released.");
  module.def("address", &dg::address, nb::arg("array"), "Where an array's first element stands.");
  module.def("instances", &dg::instances,
             "[(C++ name, files, width, who takes a row, struct of arguments)] of all kernels.");
  module.def("struct_layout", &dg::struct_layout, nb::arg("name"),
             "(bytes, [(field, offset, count, letter of a word or name of a struct)]).");
  module.def(
      "set_threads", &dg::set_threads, nb::arg("n"),
      "Threads of later launches; 0: DGPUHASH_NUM_THREADS or the CPUs that the process may use.");
  dg::add_packing(module);
  dg::add_references(module);
  dg::add_sequences(module);
  module.def("threads", &dg::threads, "Threads that a launch uses.");
}

/// dgpuhash._native: the kernels on the CPU.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/fields.cuh"
#include "host/instances.inc"
#include "host/packing.h"
#include "host/pool.h"
#include "host/sequences_module.h"

namespace nb = nanobind;

namespace dg {
namespace {

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

template <class Struct>
StructLayout layout_of() {
  static_assert(HasFields<Struct>, "DG_FIELDS is missing");
  return {sizeof(Struct), alignof(Struct), fields_of<Struct>()};
}

template <auto kernel>
struct Called;
template <class Args, void (*kernel)(Args)>
struct Called<kernel> {
  static constexpr std::size_t nbytes = sizeof(Args);

  static std::string args() { return type_name<Args>(); }
  static StructLayout layout() { return layout_of<Args>(); }
  static void run(const void* bytes) {
    Args args;
    std::memcpy(&args, bytes, sizeof args);
    kernel(args);
  }
};

template <auto kernel>
constexpr Instance made_of(const char* expression, u32 width, Taker taker, const char* file,
                           const char* table_file = nullptr) {
  using Of = Called<kernel>;
  return {{file, table_file}, expression, width,       taker,
          &Of::args,          Of::nbytes, &Of::layout, &Of::run};
}

#define DG_UNPACK(...) __VA_ARGS__
#define DG_ROW(files, expression, function, width, taker) \
  made_of<&DG_UNPACK function>(expression, width, Taker::taker, DG_UNPACK files),
constexpr Instance kInstances[] = {
#include "host/instances.inc"
};
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
  for (const auto& each : kInstances) {
    nb::list files;
    for (const char* file : each.files)
      if (file) files.append(file);
    made.append(nb::make_tuple(each.expression, nb::tuple(files), each.width,
                               takers[static_cast<int>(each.taker)], each.args()));
  }
  return made;
}

/// All structs that kernels take, those within them, and those of DG_STRUCT.
class Structs {
 public:
  Structs() {
    for (const auto& each : kInstances) add(each.args(), each.layout());
#define DG_STRUCT(Struct) add(type_name<Struct>(), layout_of<Struct>());
#include "host/instances.inc"
  }

  const StructLayout& operator[](const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) throw nb::key_error(("no struct " + name).c_str());
    return found->second;
  }

 private:
  void add(const std::string& name, StructLayout layout) {
    const auto [at, is_new] = by_name_.emplace(name, std::move(layout));
    if (!is_new) return;
    const StructLayout& made = at->second;
    if (!complete(made.fields, made.nbytes, made.alignment))
      throw std::runtime_error("DG_FIELDS of " + name +
                               " leaves fields out, or their order is another");
    for (const Field& field : made.fields)
      if (field.of) add(field.type, {field.nbytes / field.count, field.alignment, field.of()});
  }

  std::map<std::string, StructLayout> by_name_;
};

const Structs& structs() {
  static const Structs made;
  return made;
}

nb::tuple struct_layout(const std::string& name) {
  const StructLayout& layout = structs()[name];
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
  dg::structs();
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
  dg::add_sequences(module);
  module.def("threads", &dg::threads, "Threads that a launch uses.");
}

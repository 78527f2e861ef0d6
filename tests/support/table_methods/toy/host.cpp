// The kernels of a few rows of methods.inc, for ctypes: what host/extension.cpp does for all.
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "core/fields.cuh"
#include "host/instances.inc"

namespace dg {

void parallel_for(u64 rows, u64, void (*run)(const void*, u64, u64), const void* context) {
  run(context, 0, rows);
}

namespace {

std::map<std::string, void (*)(const void*)> kernels;
std::map<std::string, std::string> structs;
std::string rows;

void add_struct(const std::string& name, std::size_t nbytes, const std::vector<Field>& fields) {
  std::string text = "(" + std::to_string(nbytes) + ", [";
  for (const Field& field : fields) {
    if (field.of) add_struct(field.type, field.nbytes / field.count, field.of());
    text += "('" + field.name + "', " + std::to_string(field.offset) + ", " +
            std::to_string(field.count) + ", '" +
            (field.of ? field.type : std::string(1, field.format)) + "'), ";
  }
  structs[name] = text + "])";
}

template <auto kernel>
struct Called;
template <class Args, void (*kernel)(Args)>
struct Called<kernel> {
  static void add(const char* expression, int width, const char* taker, const char* table) {
    kernels[expression] = [](const void* bytes) {
      Args args;
      std::memcpy(&args, bytes, sizeof args);
      kernel(args);
    };
    add_struct(type_name<Args>(), sizeof(Args), fields_of<Args>());
    rows += std::string("('") + expression + "', ('launch/verbs.cuh', '" + table + "'), " +
            std::to_string(width) + ", '" + taker + "', '" + type_name<Args>() + "'), ";
  }
};

std::string described;

void add_all() {
#define DG_UNPACK(...) __VA_ARGS__
#define DG_TABLE_FILE(verbs, table) table
#define DG_ROW(files, expression, function, width, taker) \
  Called<&DG_UNPACK function>::add(expression, width, #taker, DG_TABLE_FILE files);
#include "host/instances.inc"
}

}  // namespace
}  // namespace dg

extern "C" const char* describe() {
  using namespace dg;
  add_all();
  described = "([" + rows + "], {";
  for (const auto& [name, text] : structs) described += "'" + name + "': " + text + ", ";
  described += "})";
  return described.c_str();
}

extern "C" int launch(const char* expression, const char* args) {
  const auto found = dg::kernels.find(expression);
  if (found == dg::kernels.end()) return 1;
  found->second(args);
  return 0;
}

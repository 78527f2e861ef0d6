/// DG_FIELDS(a, b, …) behind the fields of a struct tells Python, through the extension, where they
/// stand. A GPU's compiler sees nothing of it.
#pragma once

#include "core/platform.cuh"

#if DG_GPU

#define DG_FIELDS(...)

#else

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dg {

/// One field of a struct.
struct Field {
  std::string name;
  std::size_t offset;
  std::size_t nbytes;
  std::size_t alignment;
  std::string type;            // of a struct, its C++ name; else empty
  std::vector<Field> (*of)();  // the fields of a struct; else null
};

template <class Type>
concept HasFields = requires(const Type& it) { it.fields(); };

/// The C++ name of a type, without keywords: "dg::OpenStorage".
template <class Type>
std::string type_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  // GCC: "… [with Type = dg::X; std::string = …]"; clang: "… [Type = dg::X]".
  text.remove_prefix(text.find("Type = ") + 7);
  return std::string(text.substr(0, text.find_first_of(";]")));
}

template <class Struct>
std::vector<Field> fields_of() {
  static const Struct made{};
  return made.fields();
}

template <class Member>
Field field_at(const void* start, std::string_view name, const Member& member) {
  using Type = std::remove_all_extents_t<Member>;
  Field field{std::string(name),
              static_cast<std::size_t>(reinterpret_cast<const char*>(&member) -
                                       static_cast<const char*>(start)),
              sizeof member,
              alignof(Member),
              "",
              nullptr};
  if constexpr (HasFields<Type>) {
    field.type = type_name<Type>();
    field.of = &fields_of<Type>;
  }
  return field;
}

/// The fields at `members`, whose names `names` has in the same order, parted by commas.
template <class... Members>
std::vector<Field> fields_at(const void* start, std::string_view names, const Members&... members) {
  std::vector<Field> made;
  const auto next = [&] {
    const std::size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(comma == names.npos ? names.size() : comma + 2);
    return name;
  };
  // Braces keep the order.
  using Each = int[];
  static_cast<void>(Each{(made.push_back(field_at(start, next(), members)), 0)...});
  return made;
}

/// Whether every byte of a struct belongs to a field or lies before the next one's alignment.
inline bool complete(const std::vector<Field>& fields, std::size_t nbytes, std::size_t alignment) {
  std::size_t end = 0;
  const auto aligned = [&](std::size_t to) { return (end + to - 1) / to * to; };
  for (const Field& field : fields) {
    if (field.offset != aligned(field.alignment)) return false;
    end = field.offset + field.nbytes;
  }
  return nbytes == aligned(alignment);
}

}  // namespace dg

#define DG_FIELDS(...)                                       \
  std::vector<::dg::Field> fields() const {                  \
    return ::dg::fields_at(this, #__VA_ARGS__, __VA_ARGS__); \
  }

#endif

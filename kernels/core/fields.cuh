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
  char format;                 // of a word, its letter in Python's `struct`; else 0
  std::size_t count;           // more than 1 of an array
  std::string type;            // of a struct, its C++ name; else empty
  std::vector<Field> (*of)();  // the fields of a struct; else null
};

template <class Type>
concept HasFields = requires(const Type& it) { it.fields(); };

/// The C++ name of a type, without `dg::`: "OpenStorage".
template <class Type>
std::string type_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  // GCC: "… [with Type = X; std::string = …]"; clang: "… [Type = dg::X]".
  text.remove_prefix(text.find("Type = ") + 7);
  std::string name(text.substr(0, text.find_first_of(";]")));
  for (std::size_t at; (at = name.find("dg::")) != name.npos;) name.erase(at, 4);
  return name;
}

/// The letter of a word in Python's module `struct`; a pointer is a number.
template <class Word>
constexpr char format_of() {
  if constexpr (std::is_pointer_v<Word>) {
    return 'Q';
  } else if constexpr (std::is_enum_v<Word>) {
    return format_of<std::underlying_type_t<Word>>();
  } else if constexpr (std::is_floating_point_v<Word>) {
    return sizeof(Word) == 4 ? 'f' : 'd';
  } else {
    static_assert(std::is_integral_v<Word>, "a struct among the fields needs DG_FIELDS");
    constexpr std::size_t size = sizeof(Word);
    constexpr char letter = size == 1 ? 'b' : size == 2 ? 'h' : size == 4 ? 'i' : 'q';
    return std::is_signed_v<Word> ? letter : static_cast<char>(letter - 'a' + 'A');
  }
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
              0,
              sizeof member / sizeof(Type),
              "",
              nullptr};
  if constexpr (HasFields<Type>) {
    field.type = type_name<Type>();
    field.of = &fields_of<Type>;
  } else {
    field.format = format_of<Type>();
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

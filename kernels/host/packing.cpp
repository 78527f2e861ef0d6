#include "host/packing.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/platform.cuh"

namespace nb = nanobind;

namespace dg {
namespace {

/// The types by which arrays and their elements are told apart: both have the buffer protocol.
struct Types {
  PyTypeObject* array;
  PyTypeObject* number;
};

const Types& types() {
  static const Types found = [] {
    // Kept for ever, as NumPy is.
    const nb::module_ numpy = nb::module_::import_("numpy");
    const auto type = [&](const char* name) {
      return reinterpret_cast<PyTypeObject*>(numpy.attr(name).inc_ref().ptr());
    };
    return Types{type("ndarray"), type("number")};
  }();
  return found;
}

/// The address of a host array's first element; 0 of an empty one. NumPy's own ways to it make
/// Python objects, and take ten times as long.
u64 address_of(PyObject* array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES) != 0) throw nb::python_error();
  const auto found = view.len == 0 ? 0 : reinterpret_cast<std::uintptr_t>(view.buf);
  PyBuffer_Release(&view);
  return found;
}

template <class Word>
void put(char* to, Word word) {
  std::memcpy(to, &word, sizeof word);
}

[[noreturn]] void out_of_range(char format) {
  PyErr_Format(PyExc_OverflowError, "a number does not fit a word of format '%c'", format);
  throw nb::python_error();
}

template <class Word>
void put_integer(char* to, PyObject* number, char format) {
  if constexpr (std::numeric_limits<Word>::is_signed) {
    const long long found = PyLong_AsLongLong(number);
    if (found == -1 && PyErr_Occurred()) throw nb::python_error();
    if (found < std::numeric_limits<Word>::min() || found > std::numeric_limits<Word>::max())
      out_of_range(format);
    put(to, static_cast<Word>(found));
  } else {
    const unsigned long long found = PyLong_AsUnsignedLongLong(number);
    if (found == ~0ull && PyErr_Occurred()) throw nb::python_error();
    if (found > std::numeric_limits<Word>::max()) out_of_range(format);
    put(to, static_cast<Word>(found));
  }
}

void put_number(char* to, char format, PyObject* number) {
  if (format == 'd' || format == 'f') {
    const double found = PyFloat_AsDouble(number);
    if (found == -1 && PyErr_Occurred()) throw nb::python_error();
    return format == 'd' ? put(to, found) : put(to, static_cast<float>(found));
  }
  nb::object made;
  if (!PyLong_Check(number)) {
    made = nb::steal(PyNumber_Index(number));
    if (!made.is_valid()) throw nb::python_error();
    number = made.ptr();
  }
  switch (format) {
    case 'Q':
      return put_integer<u64>(to, number, format);
    case 'q':
      return put_integer<i64>(to, number, format);
    case 'I':
      return put_integer<u32>(to, number, format);
    case 'i':
      return put_integer<std::int32_t>(to, number, format);
    case 'H':
      return put_integer<std::uint16_t>(to, number, format);
    case 'h':
      return put_integer<std::int16_t>(to, number, format);
    case 'B':
      return put_integer<u8>(to, number, format);
    default:
      return put_integer<signed char>(to, number, format);
  }
}

/// `pointer` gives the addresses of arrays on a GPU; None: arrays are NumPy's.
void put_word(char* to, char format, PyObject* word, PyObject* pointer) {
  if (PyLong_CheckExact(word)) return put_number(to, format, word);
  if (word == Py_None) return;  // all is 0 already
  if (pointer == Py_None && PyObject_TypeCheck(word, types().array))
    return put(to, address_of(word));
  if (PyLong_Check(word) || PyFloat_Check(word) || PyObject_TypeCheck(word, types().number))
    return put_number(to, format, word);
  if (pointer == Py_None) {
    PyErr_Format(PyExc_TypeError, "%R is neither a number nor an array of the CPU",
                 reinterpret_cast<PyObject*>(Py_TYPE(word)));
    throw nb::python_error();
  }
  const nb::object found = nb::steal(PyObject_CallFunctionObjArgs(pointer, word, nullptr));
  if (!found.is_valid()) throw nb::python_error();
  put_number(to, format, found.ptr());
}

std::size_t nbytes_of(char format) {
  switch (format) {
    case 'Q':
    case 'q':
    case 'd':
      return 8;
    case 'I':
    case 'i':
    case 'f':
      return 4;
    case 'H':
    case 'h':
      return 2;
    default:
      return 1;
  }
}

/// The bytes of a C++ struct from values of Python: numbers, arrays for pointers, structs as bytes.
class Packer {
 public:
  /// `fields`: (name, offset, elements, letter of a word or "", Packer of a struct or None).
  Packer(std::string name, std::size_t nbytes, const nb::list& fields)
      : name_(std::move(name)), nbytes_(nbytes) {
    for (const nb::handle each : fields) {
      const auto field = nb::cast<nb::tuple>(each);
      PyObject* interned = field[0].inc_ref().ptr();
      PyUnicode_InternInPlace(&interned);
      const std::string letter = nb::cast<std::string>(field[3]);
      const bool of_words = field[4].is_none();
      fields_.push_back({nb::steal(interned), nb::cast<std::size_t>(field[1]),
                         nb::cast<std::size_t>(field[2]), of_words ? letter[0] : '\0',
                         nb::borrow(field[4]),
                         of_words ? nullptr : nb::cast<const Packer*>(field[4])});
    }
  }

  /// By the names of fields; fields that are left out are 0.
  nb::bytes pack(const nb::dict& given, nb::handle pointer) const {
    const nb::object made = room();
    Py_ssize_t taken = 0;
    for (const Field& field : fields_) {
      PyObject* value = PyDict_GetItemWithError(given.ptr(), field.name.ptr());
      if (!value) {
        if (PyErr_Occurred()) throw nb::python_error();
        if (field.of)
          refuse(PyExc_TypeError, text(field) + " is a struct of " + name_ + ", and is missing");
        continue;
      }
      ++taken;
      put_field(start(made) + field.offset, field, value, pointer.ptr());
    }
    if (taken != PyDict_Size(given.ptr())) refuse_others(given);
    return nb::borrow<nb::bytes>(made);
  }

  /// By the order of fields: the bytes of each struct, then each word.
  nb::bytes pack_in_order(const nb::tuple& structs, const nb::tuple& words,
                          nb::handle pointer) const {
    const nb::object made = room();
    std::size_t next_struct = 0, next_word = 0;
    for (const Field& field : fields_) {
      char* const to = start(made) + field.offset;
      if (field.of) {
        if (next_struct == structs.size()) refuse_count();
        put_struct(to, field, structs[next_struct++].ptr(), pointer.ptr());
      } else {
        for (std::size_t i = 0; i < field.count; ++i) {
          if (next_word == words.size()) refuse_count();
          put_word(to + i * nbytes_of(field.format), field.format, words[next_word++].ptr(),
                   pointer.ptr());
        }
      }
    }
    if (next_struct != structs.size() || next_word != words.size()) refuse_count();
    return nb::borrow<nb::bytes>(made);
  }

 private:
  struct Field {
    nb::object name;
    std::size_t offset;
    std::size_t count;
    char format;  // 0 of a struct
    nb::object kept;
    const Packer* of;
  };

  static char* start(const nb::object& made) { return PyBytes_AsString(made.ptr()); }

  nb::object room() const {
    nb::object made =
        nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(nbytes_)));
    if (!made.is_valid()) throw nb::python_error();
    std::memset(start(made), 0, nbytes_);
    return made;
  }

  void put_field(char* to, const Field& field, PyObject* value, PyObject* pointer) const {
    if (field.of) return put_struct(to, field, value, pointer);
    if (field.count == 1) return put_word(to, field.format, value, pointer);
    put_words(to, field, value, pointer);
  }

  void put_words(char* to, const Field& field, PyObject* value, PyObject* pointer) const {
    if (PySequence_Size(value) != static_cast<Py_ssize_t>(field.count)) {
      PyErr_Clear();
      refuse(PyExc_TypeError, text(field) + " has " + std::to_string(field.count) + " words");
    }
    for (std::size_t i = 0; i < field.count; ++i) {
      const nb::object word = nb::steal(PySequence_GetItem(value, static_cast<Py_ssize_t>(i)));
      if (!word.is_valid()) throw nb::python_error();
      put_word(to + i * nbytes_of(field.format), field.format, word.ptr(), pointer);
    }
  }

  void put_struct(char* to, const Field& field, PyObject* value, PyObject* pointer) const {
    if (PyTuple_Check(value)) {
      const nb::bytes made =
          field.of->pack_in_order(nb::tuple(), nb::borrow<nb::tuple>(value), pointer);
      std::memcpy(to, made.c_str(), field.of->nbytes_);
      return;
    }
    char* bytes;
    Py_ssize_t nbytes;
    if (PyBytes_AsStringAndSize(value, &bytes, &nbytes) != 0) throw nb::python_error();
    if (nbytes != static_cast<Py_ssize_t>(field.of->nbytes_))
      refuse(PyExc_TypeError, field.of->name_ + " has " + std::to_string(field.of->nbytes_) +
                                  " bytes and was given " + std::to_string(nbytes));
    std::memcpy(to, bytes, static_cast<std::size_t>(nbytes));
  }

  static std::string text(const Field& field) { return nb::cast<std::string>(field.name); }

  [[noreturn]] static void refuse(PyObject* kind, const std::string& why) {
    PyErr_SetString(kind, why.c_str());
    throw nb::python_error();
  }

  [[noreturn]] void refuse_count() const {
    refuse(PyExc_TypeError, name_ + " has another number of structs or words");
  }

  [[noreturn]] void refuse_others(const nb::dict& given) const {
    std::string unknown, known;
    const auto add = [](std::string& to, const std::string& name) {
      to += to.empty() ? name : ", " + name;
    };
    for (const Field& field : fields_) add(known, text(field));
    for (const auto& [name, value] : given) {
      bool is_known = false;
      for (const Field& field : fields_) is_known |= field.name.equal(name);
      if (!is_known) add(unknown, nb::cast<std::string>(name));
    }
    refuse(PyExc_TypeError, unknown + ": no such fields, use " + known);
  }

  std::string name_;
  std::size_t nbytes_;
  std::vector<Field> fields_;
};

}  // namespace

void add_packing(nb::module_& module) {
  nb::class_<Packer>(module, "Packer", "Packs values of Python into the bytes of a struct.")
      .def(nb::init<std::string, std::size_t, const nb::list&>(), nb::arg("name"),
           nb::arg("nbytes"), nb::arg("fields"))
      .def("pack", &Packer::pack, nb::arg("fields"), nb::arg("pointer").none(),
           "The bytes of a struct, from its fields by name.")
      .def("pack_in_order", &Packer::pack_in_order, nb::arg("structs"), nb::arg("words"),
           nb::arg("pointer").none(),
           "The bytes of a struct: its structs in order, its words in order.");
}

}  // namespace dg

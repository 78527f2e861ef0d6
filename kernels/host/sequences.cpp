/// The parser of sequences for Python.
#include "host/sequences.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "host/sequences_module.h"

namespace nb = nanobind;

namespace dg {
namespace {

template <class Word>
using Input = nb::ndarray<const Word, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A NumPy array that owns the column's memory.
template <class Word>
nb::object array_of(Column<Word>&& from) {
  auto owned = std::make_unique<Column<Word>>(std::move(from));
  auto* column = owned.get();
  nb::capsule owner(owned.release(),
                    [](void* it) noexcept { delete static_cast<Column<Word>*>(it); });
  static Word nothing;
  Word* data = column->empty() ? &nothing : column->data();
  return nb::cast(nb::ndarray<nb::numpy, Word, nb::ndim<1>>(data, {column->size()}, owner));
}

const char* name(SequenceParser::Fault fault) {
  constexpr const char* names[] = {
      "",        "no_header",     "mixed",        "control_byte", "protein", "no_sequence",
      "no_plus", "short_quality", "long_quality", "truncated"};
  return names[static_cast<int>(fault)];
}

void feed(SequenceParser& parser, nb::handle text, bool last) {
  Py_buffer view;
  if (PyObject_GetBuffer(text.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  {
    nb::gil_scoped_release released;
    parser.feed({static_cast<const char*>(view.buf), static_cast<std::size_t>(view.len)}, last);
  }
  PyBuffer_Release(&view);
}

nb::tuple take(SequenceParser& parser, i64 most) {
  Records taken;
  {
    nb::gil_scoped_release released;
    taken = parser.take(most);
  }
  return nb::make_tuple(array_of(std::move(taken.letters)), array_of(std::move(taken.offsets)),
                        array_of(std::move(taken.qualities)), array_of(std::move(taken.names)),
                        array_of(std::move(taken.name_offsets)), array_of(std::move(taken.numbers)),
                        array_of(std::move(taken.starts)), taken.cut);
}

nb::object error(const SequenceParser& parser) {
  const auto& error = parser.error();
  if (error.fault == SequenceParser::Fault::none) return nb::none();
  return nb::make_tuple(name(error.fault), error.record, error.line, error.detail);
}

/// The first pair whose names differ, else their number.
i64 unlike(Input<u8> names, Input<i64> offsets, Input<u8> mates, Input<i64> mate_offsets) {
  const i64 n = static_cast<i64>(offsets.size()) - 1;
  const auto name_at = [](const Input<u8>& text, const Input<i64>& ends, i64 at) {
    const char* bytes = reinterpret_cast<const char*>(text.data());
    return name_of_pair(
        {bytes + ends.data()[at], static_cast<std::size_t>(ends.data()[at + 1] - ends.data()[at])});
  };
  nb::gil_scoped_release released;
  for (i64 pair = 0; pair < n; ++pair)
    if (name_at(names, offsets, pair) != name_at(mates, mate_offsets, pair)) return pair;
  return n;
}

}  // namespace

void add_sequences(nb::module_& module) {
  nb::class_<SequenceParser>(module, "SequenceParser")
      .def(nb::init<i64, i64>(), nb::arg("overlap"), nb::arg("stride") = 1)
      .def("feed", &feed, nb::arg("text"), nb::arg("last"),
           "Parse the next bytes of the text; the GIL is released.")
      .def("take", &take, nb::arg("most") = -1,
           "(letters, offsets, qualities, names, name_offsets, numbers, starts, cut) of records so "
           "far.")
      .def_prop_ro("error", &error, "(fault, record, line, detail), or None.")
      .def_prop_ro("letters", &SequenceParser::letters, "Letters that `take` would give.")
      .def_prop_ro("records", &SequenceParser::whole_records, "Whole records that are held.")
      .def_prop_ro(
          "format",
          [](const SequenceParser& it) { return std::string(it.format() ? 1 : 0, it.format()); },
          "'>' of FASTA, '@' of FASTQ, '' before the first record.");
  module.def("unlike_names", &unlike, nb::arg("names"), nb::arg("offsets"), nb::arg("mates"),
             nb::arg("mate_offsets"), "The first pair whose names differ, else their number.");
}

}  // namespace dg

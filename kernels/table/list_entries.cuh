/// What the slots of a multimap hold beside the keys: a key's only value itself, or the number of its
/// list, told from values by the range of words that it is in. So a table of keys that come once is a
/// plain map, and a slot is as wide as key and value.
#pragma once

#include "core/fields.cuh"
#include "core/platform.cuh"
#include "table/bucket_list.cuh"

namespace dg {

/// An element of an array of words of 4 or 8 bytes.
DG_FN u64 load_word(const void* words, u64 nbytes, u64 index) {
  return nbytes == 8 ? static_cast<const u64*>(words)[index]
                     : static_cast<const u32*>(words)[index];
}
DG_FN void store_word(void* words, u64 nbytes, u64 index, u64 word) {
  if (nbytes == 8)
    static_cast<u64*>(words)[index] = word;
  else
    static_cast<u32*>(words)[index] = static_cast<u32>(word);
}

/// Lists are numbered: first those that were settled, whose runs follow one another in the pool; then
/// others, by the handles that they have. An entry below `base` or past the `span` of numbers is a
/// value; a value that is not has a list of its own.
struct ListEntries {
  u64 base;
  u64 span;
  u64 nbytes;          // of an entry
  u64 value_nbytes;    // of a value
  const void* starts;  // of the settled lists' runs, and the last one's end
  u64 start_nbytes;
  u64 settled;
  u64* handles;  // of the other lists

  DG_FIELDS(base, span, nbytes, value_nbytes, starts, start_nbytes, settled, handles)

  /// Only of entries that are no value.
  DG_FN u64 number_of(u64 entry) const { return entry - base; }
  DG_FN u64 entry_of(u64 number) const { return base + number; }
  DG_FN bool is_value(u64 entry) const { return entry - base >= span; }
  DG_FN bool is_settled(u64 entry) const { return entry - base < settled; }

  DG_FN u64 load(const void* entries, u64 row) const { return load_word(entries, nbytes, row); }
  DG_FN void store(void* entries, u64 row, u64 entry) const {
    store_word(entries, nbytes, row, entry);
  }
  DG_FN u64 load_value(const void* values, u64 place) const {
    return load_word(values, value_nbytes, place);
  }
  DG_FN u64 load_start(u64 number) const { return load_word(starts, start_nbytes, number); }

  /// The handle of the key that `entries[row]` was found for.
  DG_FN ListHandle open(const void* entries, u64 row) const {
    const u64 entry = load(entries, row);
    // An entry as wide as two values has an only one in its first, low half.
    if (is_value(entry)) return ListHandle::value(row * (nbytes / value_nbytes));
    const u64 number = number_of(entry);
    if (number >= settled) return {handles[number - settled]};
    const u64 start = load_start(number);
    return ListHandle::run(start, load_start(number + 1) - start);
  }
};

}  // namespace dg

/// Records of FASTA and FASTQ text as it arrives, in pieces of any length, as arrays.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "core/platform.cuh"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace dg {

/// Memory whose large blocks lie in large pages where the system has them: a batch of reads else takes
/// tens of thousands of page faults, which are slow in virtual machines.
template <class Word>
struct LargePages {
  using value_type = Word;

  LargePages() = default;
  template <class Other>
  LargePages(const LargePages<Other>&) {}  // NOLINT: containers convert it

  Word* allocate(std::size_t n) {
    if (!is_large(n)) return static_cast<Word*>(::operator new(n * sizeof(Word)));
    const std::size_t nbytes = (n * sizeof(Word) + kPage - 1) / kPage * kPage;
    void* block = std::aligned_alloc(kPage, nbytes);
    if (!block) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(block, nbytes, MADV_HUGEPAGE);
#endif
    return static_cast<Word*>(block);
  }

  void deallocate(Word* block, std::size_t n) {
    if (is_large(n))
      std::free(block);
    else
      ::operator delete(block);
  }

  template <class Other>
  bool operator==(const LargePages<Other>&) const {
    return true;
  }

 private:
  static constexpr std::size_t kPage = std::size_t{1} << 21;
  static bool is_large(std::size_t n) { return n * sizeof(Word) >= 2 * kPage; }
};

template <class Word>
using Column = std::vector<Word, LargePages<Word>>;

/// Records, or pieces of long ones: letters and qualities one after another, and where each begins.
struct Records {
  Column<u8> letters, qualities, names;
  Column<i64> offsets{0}, name_offsets{0};
  Column<i64> numbers;  // of the record in the file, from 0
  Column<i64> starts;   // the piece's first letter in its record
  bool cut = false;     // whether the last one goes on
};

class SequenceParser {
 public:
  enum class Fault {
    none,
    no_header,
    mixed,
    control_byte,
    protein,
    no_sequence,
    no_plus,
    short_quality,
    long_quality,
    truncated,
  };

  /// Where the text is wrong.
  struct Error {
    Fault fault = Fault::none;
    i64 record = 0;
    i64 line = 0;
    std::string detail;
  };

  /// Records that are not whole yet are cut where `take` finds them, and go on with their last `overlap`
  /// letters, or fewer, from a multiple of `stride` on; so all windows of `overlap` + 1 letters that begin
  /// there are whole in one piece. Below 0 they stay until they are whole, as those of FASTQ always do.
  explicit SequenceParser(i64 overlap, i64 stride) : overlap_(overlap), stride_(stride) {}

  /// Parses the text's next bytes; after an error nothing more.
  void feed(std::string_view text, bool last) {
    if (text_is_new_ && !text.empty()) begin_text(text);
    while (!text.empty() && error_.fault == Fault::none) {
      const void* end = std::memchr(text.data(), newline_, text.size());
      if (!end) {
        keep(text);
        break;
      }
      const std::size_t length =
          static_cast<std::size_t>(static_cast<const char*>(end) - text.data());
      end_line(text.substr(0, length));
      text.remove_prefix(length + 1);
    }
    if (last && error_.fault == Fault::none) end_text();
  }

  /// The first `most` whole records; below 0 all, and what there is of the next one where it may be cut.
  Records take(i64 most) {
    const std::size_t whole = held_.offsets.size() - 1;
    std::size_t taken = most < 0 ? whole : std::min(static_cast<std::size_t>(most), whole);
    std::size_t carried = 0;
    const bool cut = most < 0 && overlap_ >= 0 && open_ && is_fasta() &&
                     held_.letters.size() - last_offset() > carried_;
    if (cut) {
      const std::size_t length = held_.letters.size() - last_offset();
      held_.offsets.push_back(static_cast<i64>(held_.letters.size()));
      const i64 end = held_.starts.back() + static_cast<i64>(length);
      const i64 first = std::max(end - overlap_ + stride_ - 1, i64{0}) / stride_ * stride_;
      carried = static_cast<std::size_t>(end - std::max(std::min(first, end), held_.starts.back()));
      taken = whole + 1;
    }
    Records out = std::move(held_);
    held_ = Records();
    const std::size_t at = static_cast<std::size_t>(out.offsets[taken]);
    const std::size_t named = static_cast<std::size_t>(out.name_offsets[cut ? whole : taken]);
    copy_from(out.letters, at - carried, held_.letters);
    if (!out.qualities.empty()) copy_from(out.qualities, at, held_.qualities);
    copy_from(out.names, named, held_.names);
    for (std::size_t i = taken + 1; i < out.offsets.size(); ++i)
      held_.offsets.push_back(out.offsets[i] - static_cast<i64>(at));
    for (std::size_t i = (cut ? whole : taken) + 1; i < out.name_offsets.size(); ++i)
      held_.name_offsets.push_back(out.name_offsets[i] - static_cast<i64>(named));
    copy_from(out.numbers, cut ? whole : taken, held_.numbers);
    copy_from(out.starts, cut ? whole : taken, held_.starts);
    if (cut) {
      held_.starts[0] += out.offsets[taken] - out.offsets[whole] - static_cast<i64>(carried);
      carried_ = carried;
    }
    out.letters.resize(at);
    if (!out.qualities.empty()) out.qualities.resize(at);
    out.names.resize(static_cast<std::size_t>(out.name_offsets[taken]));
    out.offsets.resize(taken + 1);
    out.name_offsets.resize(taken + 1);
    out.numbers.resize(taken);
    out.starts.resize(taken);
    out.cut = cut;
    return out;
  }

  const Error& error() const { return error_; }
  std::size_t letters() const { return held_.letters.size(); }
  std::size_t whole_records() const { return held_.offsets.size() - 1; }
  /// '>' or '@'; 0 before the first record.
  char format() const { return format_; }

 private:
  enum class Expected { header, sequence, plus, quality };

  static constexpr std::size_t kLettersLookedAt = 65536;
  static constexpr std::size_t kFewestLetters = 20;

  template <class Of>
  static void copy_from(const Column<Of>& from, std::size_t at, Column<Of>& to) {
    to.assign(from.begin() + static_cast<std::ptrdiff_t>(at), from.end());
  }

  static bool is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

  static std::string_view without_blanks(std::string_view text) {
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
  }

  bool is_fasta() const { return format_ == '>'; }
  std::size_t last_offset() const { return static_cast<std::size_t>(held_.offsets.back()); }

  void fail(Fault fault, std::string detail = {}) {
    // The line that is being read is not counted yet.
    error_ = {fault, records_, lines_ + 1, std::move(detail)};
  }

  void begin_text(std::string_view& text) {
    text_is_new_ = false;
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    const std::size_t end = text.find_first_of("\r\n");
    if (end != text.npos && text[end] == '\r' && end + 1 < text.size() && text[end + 1] != '\n')
      newline_ = '\r';
  }

  /// The beginning of a line whose end is not there yet; letters of FASTA need not wait for it.
  void keep(std::string_view text) {
    if (!in_letters_ &&
        (!is_fasta() || !open_ || !tail_.empty() || text[0] == '>' || text[0] == '@')) {
      tail_.append(text);
      return;
    }
    in_letters_ = true;
    std::string joined;
    if (!tail_.empty()) {
      joined = tail_.append(text);
      text = joined;
    }
    const std::string_view part = without_blanks(text);
    add_letters(part);
    tail_.assign(text.substr(part.size()));
  }

  void end_line(std::string_view text) {
    if (tail_.empty()) {
      line(text);
    } else {
      tail_.append(text);
      line(tail_);
      tail_.clear();
    }
    in_letters_ = false;
    if (error_.fault == Fault::none) ++lines_;
  }

  void line(std::string_view text) {
    text = without_blanks(text);
    if (in_letters_) return add_letters(text);
    if (format_ == 0) {
      if (text.empty()) return;
      if (text[0] != '>' && text[0] != '@') return fail(Fault::no_header);
      format_ = text[0];
    }
    if (is_fasta())
      fasta_line(text);
    else
      fastq_line(text);
  }

  void fasta_line(std::string_view text) {
    if (text.empty()) return;
    if (text[0] == '@') return fail(Fault::mixed);
    if (text[0] != '>') return add_letters(text);
    if (open_) end_record();
    begin_record(text.substr(1));
  }

  void fastq_line(std::string_view text) {
    switch (expected_) {
      case Expected::header:
        if (text.empty()) return;
        if (text[0] != '@') return fail(text[0] == '>' ? Fault::mixed : Fault::no_header);
        begin_record(text.substr(1));
        expected_ = Expected::sequence;
        return;
      case Expected::sequence:
        if (!text.empty() && text[0] == '+') return fail(Fault::no_sequence);
        add_letters(text);
        expected_ = Expected::plus;
        return;
      case Expected::plus:
        if (text.empty() || text[0] != '+') return fail(Fault::no_plus);
        expected_ = Expected::quality;
        return;
      case Expected::quality:
        const std::size_t wanted = held_.letters.size() - last_offset();
        if (text.size() != wanted)
          return fail(
              text.size() < wanted ? Fault::short_quality : Fault::long_quality,
              std::to_string(text.size()) + " qualities of " + std::to_string(wanted) + " letters");
        if (has_control(text)) return fail(Fault::control_byte);
        held_.qualities.insert(held_.qualities.end(), text.begin(), text.end());
        end_record();
        expected_ = Expected::header;
    }
  }

  void begin_record(std::string_view name) {
    ++records_;
    if (has_control(name)) return fail(Fault::control_byte);
    held_.names.insert(held_.names.end(), name.begin(), name.end());
    held_.name_offsets.push_back(static_cast<i64>(held_.names.size()));
    held_.numbers.push_back(records_ - 1);
    held_.starts.push_back(0);
    open_ = true;
    carried_ = 0;
  }

  void end_record() {
    held_.offsets.push_back(static_cast<i64>(held_.letters.size()));
    open_ = false;
  }

  void add_letters(std::string_view text) {
    if (has_control(text)) return fail(Fault::control_byte);
    held_.letters.insert(held_.letters.end(), text.begin(), text.end());
    if (looked_at_ < kLettersLookedAt) look_at(text);
  }

  /// Bytes of no text; blanks and letters beyond ASCII pass.
  static bool has_control(std::string_view text) {
    u8 found = 0;
    for (const char letter : text) {
      const u8 byte = static_cast<u8>(letter);
      found |= static_cast<u8>(byte < 32) & static_cast<u8>(byte != '\t');
      found |= static_cast<u8>(byte == 127);
    }
    return found != 0;
  }

  /// Proteins have letters that no nucleotide has.
  void look_at(std::string_view text) {
    static constexpr std::string_view kOthers = "EFIJLOPQZefijlopqz*";
    for (const char letter : text) others_ += kOthers.find(letter) != kOthers.npos;
    looked_at_ += text.size();
    if (looked_at_ >= kLettersLookedAt) judge();
  }

  void judge() {
    if (looked_at_ >= kFewestLetters && others_ * 10 > looked_at_) fail(Fault::protein);
  }

  void end_text() {
    if (!tail_.empty() || in_letters_) end_line({});
    if (error_.fault != Fault::none) return;
    if (looked_at_ < kLettersLookedAt) judge();
    if (error_.fault != Fault::none || !open_) return;
    if (!is_fasta()) {
      const bool is_whole = expected_ == Expected::quality && held_.letters.size() == last_offset();
      if (!is_whole) return fail(Fault::truncated);
    }
    end_record();
  }

  const i64 overlap_, stride_;
  Records held_;
  Error error_;
  std::string tail_;         // of the text, a line's beginning
  bool in_letters_ = false;  // whether letters of that line are held already
  bool text_is_new_ = true;
  bool open_ = false;  // whether the last record goes on
  char newline_ = '\n';
  char format_ = 0;
  Expected expected_ = Expected::header;
  std::size_t carried_ = 0;  // letters of the open piece that the one before has, too
  std::size_t looked_at_ = 0, others_ = 0;
  i64 records_ = 0, lines_ = 0;
};

/// A name without its comment and the mate's number, /1 or /2.
inline std::string_view name_of_pair(std::string_view name) {
  name = name.substr(0, name.find_first_of(" \t"));
  if (name.ends_with("/1") || name.ends_with("/2")) name.remove_suffix(2);
  return name;
}

}  // namespace dg

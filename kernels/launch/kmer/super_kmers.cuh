/// Letters into super-k-mers of parts, these into words of 2 bits a base, and back into k-mers. And k-mers as
/// text. Rows are stretches of letters, super-k-mers or k-mers; tiles have one lane.
#pragma once

#include "batch/rows.cuh"
#include "core/fields.cuh"
#include "grid/for_each.cuh"
#include "kmer/super_kmers.cuh"

namespace dg {

struct SuperKmerArgs {
  const u8* letters;
  const i64* offsets;  // of each record, and the end of the last one, which is `rows`
  i64* counts;         // of each segment: how many super-k-mers it has
  i64* starts;         // of each super-k-mer: its first letter
  u16* kmers;          // and its k-mers
  u16* parts;          // and the part
  u64 k;
  u64 m;
  u64 n_parts;
  u64 records;
  u64 rows;          // letters
  u64 segment_rows;  // letters in which a lane's k-mers start, at most 65,535
  u64 room;          // for so many super-k-mers of a segment; what is more is counted alone
  u64 n;             // segments

  DG_FIELDS(letters, offsets, counts, starts, kmers, parts, k, m, n_parts, records, rows,
            segment_rows, room, n)
};

/// Each segment writes from its own room's begin on.
DG_KERNEL super_kmer_find(SuperKmerArgs args) {
  const KmerParts by{static_cast<u32>(args.k), static_cast<u32>(args.m), args.n_parts};
  for_each_segment<1>(args.n, args.segment_rows, [&](auto, u64 segment) {
    const u64 first = segment * args.segment_rows, room = segment * args.room;
    u64 count = 0;
    for_each_super_kmer(by, args.letters, args.offsets,
                        row_at(args.offsets, args.records, first, 0), first,
                        end_of_rows(args, segment), [&](u64 start, u64 kmers, u32 part) {
                          if (count < args.room) {
                            args.starts[room + count] = static_cast<i64>(start);
                            args.kmers[room + count] = static_cast<u16>(kmers);
                            args.parts[room + count] = static_cast<u16>(part);
                          }
                          ++count;
                        });
    args.counts[segment] = static_cast<i64>(count);
  });
}

struct PackArgs {
  const u8* letters;
  const i64* starts;
  const u16* kmers;
  const i64* places;  // where the bytes of each go
  u8* packed;
  u64 k;
  u64 n;  // super-k-mers

  DG_FIELDS(letters, starts, kmers, places, packed, k, n)
};

/// Four bases a byte, the first one lowest; each super-k-mer begins with a byte.
DG_KERNEL super_kmer_pack(PackArgs args) {
  const auto pack = [&](auto, u64 row) {
    const u64 letters = args.kmers[row] + args.k - 1;
    const u8* from = args.letters + args.starts[row];
    u8* to = args.packed + args.places[row];
    u64 at = 0;
    for (; at + 8 <= letters; at += 8) {
      u64 eight = 0;
      for (u32 i = 0; i < 8; ++i) eight |= static_cast<u64>(from[at + i]) << 8 * i;
      const u32 bases = bases_of(eight);
      *to++ = static_cast<u8>(bases);
      *to++ = static_cast<u8>(bases >> 8);
    }
    for (; at < letters; at += 4) {
      u32 byte = 0;
      for (u32 i = 0; i < 4 && at + i < letters; ++i) byte |= base_of(from[at + i]) << 2 * i;
      *to++ = static_cast<u8>(byte);
    }
  };
  // Their order is not that of the letters.
  for_each_tile<1>(args.n, pack, [&](u64 row) {
    prefetch(args.letters + args.starts[row]);
    prefetch(args.letters + args.starts[row] + args.k);
  });
}

struct UnpackArgs {
  const u8* packed;
  const i64* places;  // of each super-k-mer: its first byte
  const u16* kmers;
  const i64* rows;  // and the row of its first k-mer
  u64* low;
  u64* high;  // above 32 bases
  u64 k;
  u64 canonical;  // 0: as they were read
  u64 n;

  DG_FIELDS(packed, places, kmers, rows, low, high, k, canonical, n)
};

template <class Kmer>
DG_FN void unpack(const UnpackArgs& args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    const u32 k = static_cast<u32>(args.k);
    const u64 letters = args.kmers[row] + args.k - 1;
    const u8* from = args.packed + args.places[row];
    u64 to = static_cast<u64>(args.rows[row]);
    Kmer kmer;
    for (u64 at = 0; at < letters; ++at) {
      kmer.push(from[at / 4] >> 2 * (at % 4) & 3, k);
      if (at + 1 >= k) kmer.put(args.low, args.high, to++, args.canonical != 0);
    }
  });
}

DG_KERNEL super_kmer_unpack(UnpackArgs args) { unpack<Kmer64>(args); }
DG_KERNEL super_kmer_unpack_wide(UnpackArgs args) { unpack<Kmer128>(args); }

struct KmerTextArgs {
  const u64* low;
  const u64* high;  // above 32 bases
  const u64* counts;
  const i64* ends;  // of each line
  u8* text;
  u64 k;
  u64 n;

  DG_FIELDS(low, high, counts, ends, text, k, n)
};

/// Lines of a k-mer, a tab and its count.
DG_KERNEL kmer_text(KmerTextArgs args) {
  for_each_tile<1>(args.n, [&](auto, u64 row) {
    u8* at = args.text + args.ends[row];
    *--at = '\n';
    u64 count = args.counts[row];
    do {
      *--at = static_cast<u8>('0' + count % 10);
      count /= 10;
    } while (count != 0);
    *--at = '\t';
    u64 word = args.low[row];
    for (u64 i = 0; i < args.k; ++i) {
      if (i == 32) word = args.high[row];
      *--at = letter_of(static_cast<u32>(word & 3));
      word >>= 2;
    }
  });
}

}  // namespace dg

/// Inserts that look at half a bucket, one sector of 32 bytes, as long as that will do: the L2 cache answers
/// sectors, so these are half of the work of inserts that look at whole ones.
///
/// A key aims at a half of each bucket, as its hash says. Where all keys of a table were stored so, and none
/// was erased, an EMPTY slot in the half that a key aims at says that the key is nowhere else: it would
/// stand in this half, or the half would be full. Who searches looks at whole buckets, so to others such
/// tables are like any.
#pragma once

#include "table/open_rows.cuh"

namespace dg {

template <class KeyType, class ValueType>
struct OpenAims : OpenRows<KeyType, ValueType> {
  using Table = OpenRows<KeyType, ValueType>;
  using Table::at;
  using Table::hash_of;
  using typename Table::Key;
  using typename Table::Slots;
  using typename Table::Stop;

  /// As `insert_rows`, without a limit.
  template <class Lanes, class Rows, class Ask, class Tell>
  DG_FN void insert_aimed(Lanes tile, Rows& rows, const Ask& ask, const Tell& tell) const {
    this->template insert_rows_by<false>(ByHalf{*this}, tile, rows, Table::unlimited, ask, tell);
  }

 private:
  static constexpr u32 kHalf = kQuarters / 2;

  /// What a lane looks for, and the half where it does; halves are numbered through the table.
  struct Sought {
    Key key;
    SegmentedProbe<1> probe;
    u32 half;
    bool other;  // the half that the key does not aim at
  };

  /// Halves of buckets, by two lanes each.
  struct ByHalf {
    const OpenAims& table;

    DG_FN Sought seek(Key key) const {
      const SegmentedProbe<1> probe(table.at.buckets, table.at.segment_shift, table.hash_of(key));
      return Sought{key, probe, aimed(probe.first, probe.low), false};
    }

    DG_FN bool advance(Sought& mine) const {
      mine.other = !mine.other;
      mine.half ^= 1;
      if (mine.other) return true;
      mine.probe.next();
      const u64 bucket = mine.probe.bucket(0, [&] { return table.hash_of(mine.key); });
      mine.half = aimed(bucket, mine.probe.low);
      return !mine.probe.ended();
    }

    template <class Lanes>
    DG_FN Stop look(Lanes tile, const Sought& mine) const {
      const auto seen = Lines<Slots>::template look_by<true, kHalf>(
          tile, mine.key, mine.half, [&](u32 half, u32 part) {
            return table.template load<Access::shared>(half / 2, half % 2 * kHalf + part);
          });
      return Table::stop_of(seen);
    }

    /// By another bit of the hash than the filter and the steps take.
    DG_FN static u32 aimed(u64 bucket, u32 low) {
      return static_cast<u32>(bucket) * 2 + (low >> 24 & 1);
    }
  };
};

}  // namespace dg

/// DACHash (§III): chains of super nodes of 16 to 128 bytes, one a bucket, for sets, maps and mixed batches.
///
/// A node begins with its header, and slots follow:
///
///   word 0         the index of the next node
///   word 1         of 8 + 8 bytes the ready bits; else nothing
///   word 2, 3      of 8 + 8 bytes: nothing
///
/// Of 64 bytes there is room for 7 pairs of 4 + 4, 14 keys of 4, 7 keys of 8, and 3 pairs of 8 + 8. The first node
/// of each bucket stands in an array of its own; further ones come from a pool (memory/node_stack.cuh).
///
/// One lane looks for a key by reading up to four quarters of a node at once (one-to-one); the lanes of a tile
/// read a quarter each (many-to-one). Invariants are those of table/slab/node_slots.cuh and table/slab/chains.cuh:
/// only the last node of a chain has EMPTY slots, the last slots of it.
#pragma once

#include "core/hash.cuh"
#include "core/tile.cuh"
#include "memory/node_stack.cuh"
#include "table/slab/unique_keys.cuh"
#include "table/table_state.cuh"

namespace dg {

/// In place of the index of the next node: somebody is about to link one.
inline constexpr u32 kNodeComes = kNoNode - 1;

/// A table as kernels get it, by value.
struct SupernodeStorage {
  NodePool pool;
  void* nodes;  // the first of each bucket
  TableState* state;
  u64 buckets;
  u64 seed;

  DG_FIELDS(pool, nodes, state, buckets, seed)
};

template <class KeyType, class ValueType>
struct NodeChains : NodeSlots<SupernodeStorage, KeyType, ValueType, 1, true> {
  using Own = NodeSlots<SupernodeStorage, KeyType, ValueType, 1, true>;
  using Own::at;
  using Own::auxiliary_of;
  using Own::per_quarter;
  using typename Own::End;
  using typename Own::Key;
  using typename Own::Sight;
  using typename Own::Slots;
  using typename Own::Stop;
  using typename Own::Unit;
  using typename Own::Value;

  /// Slots in whose place the header is.
  static constexpr u32 first_slot = Slots::nbytes < 8 ? 8 / Slots::nbytes : 1;

  DG_FN static u32* next_of(char* node) { return reinterpret_cast<u32*>(node); }
  DG_FN NodeStack pool() const { return {at.pool}; }
  DG_FN u32 log_quarters() const { return static_cast<u32>(at.pool.log_quarters); }
  DG_FN u32 quarters() const { return 1u << log_quarters(); }
  /// Slots of a node, those of the header too.
  DG_FN u32 slots() const { return per_quarter << log_quarters(); }

  DG_FN char* first_node(u64 bucket) const {
    return static_cast<char*>(at.nodes) + NodeStack::nbytes_to(bucket, log_quarters());
  }
  DG_FN char* chain_of(Key key) const {
    return first_node(owner_of_hash(hash_key(key, at.seed), static_cast<u32>(at.buckets)));
  }

  DG_FN void prefetch(Key key) const { dg::prefetch(chain_of(key)); }

  /// Walks from a node on.
  template <Access access, class Tile>
  DG_FN Stop walk(Tile tile, Key key, char* node) const {
    constexpr u32 at_once = Tile::size == 1 ? 4 : 1;
    // One lane reads each sector by two loads, and of a batch in order neighbours read the same nodes.
    constexpr Access how = access == Access::frozen && Tile::size == 1 ? Access::staying : access;
    const u32 all = quarters();
    Stop stop{End::full, 0, 0, 0, Value{}, node};
    while (true) {
      ++stop.nodes;
      u32 next = kNoNode;
      for (u32 first = 0; first < all; first += at_once * Tile::size) {
        // Where a node has fewer quarters than lanes, lanes beyond them read what others read.
        const u32 part = Tile::size == 1 ? first : (first + tile.lane()) & (all - 1);
        Quarter seen[at_once];
        DG_UNROLL
        for (u32 i = 0; i < at_once; ++i)
          if (i == 0 || first + i < all)
            seen[i] = load_quarter<how, Unit>(stop.node + (part + i) * kQuarterBytes);
        if (part == 0) {
          next = seen[0].word[0];
          hide_header(seen[0]);
        }
        constexpr u32 none = ~0u;
        u32 hit = none, gap = none;
        DG_UNROLL
        for (u32 i = at_once; i-- > 0;) {
          if (i > 0 && first + i >= all) continue;
          const Sight sight = Own::scan(seen[i], key);
          if (sight.hit < per_quarter) {
            hit = (part + i) * per_quarter + sight.hit;
            stop.value = Own::value_at(seen[i], sight.hit);
          }
          if (sight.gap < per_quarter) gap = (part + i) * per_quarter + sight.gap;
        }
        if (const u32 hits = tile.ballot(hit != none)) {
          stop.end = End::key;
          stop.lane = lowest_one(hits);
          stop.slot = hit;
          return stop;
        }
        if (const u32 gaps = tile.ballot(gap != none)) {
          stop.end = End::gap;
          stop.lane = lowest_one(gaps);
          stop.slot = gap;
          return stop;
        }
        if (first == 0) next = tile.shuffle(next, 0);
      }
      if (next >= kNodeComes) return stop;
      stop.node = pool().node(next);
    }
  }

  /// Links another node behind the last one of a chain, and gives what stands behind that by now; null where
  /// the pool has none to give. Of the rows that come here at once one takes a node and the others wait for it:
  /// were each to take one, as in the paper, a pool would need one for each lane of the GPU.
  template <class Tile>
  DG_FN char* extend(Tile tile, u64, char* last) const {
    u32 next = kNoNode;
    if (tile.lane() == 0) {
      u32* const link = next_of(last);
      next = atomic_load<Order::relaxed>(link);
      for (u32 round = 0; next >= kNodeComes; ++round) {
        if (next == kNodeComes) {
          back_off(round);
          next = atomic_load<Order::relaxed>(link);
          continue;
        }
        next = atomic_swap_if<Order::relaxed>(link, kNoNode, kNodeComes);
        if (next == kNoNode) {
          next = pool().take();
          atomic_store<Order::relaxed>(link, next);
          break;
        }
      }
    }
    next = tile.shuffle(next, 0);
    return next == kNoNode ? nullptr : pool().node(next);
  }

  /// The paper's clean: moves what a bucket's chain holds to its beginning, and gives the nodes that are left
  /// back, by one lane. Alone at the bucket, in a launch that takes no node.
  template <class Tile>
  DG_FN Flushed flush(Tile, u64 bucket) const {
    static_assert(Tile::size == 1);
    Flushed done{0, 0};
    char *from = first_node(bucket), *to = from;
    u32 filled = first_slot;
    while (true) {
      for (u32 slot = first_slot; slot < slots(); ++slot) {
        Key key;
        Value value;
        Own::get(from, slot, key, value);
        if (key == Mark<Key>::empty) break;
        if (key == Mark<Key>::erased) {
          ++done.marks;
          continue;
        }
        if (filled == slots()) {
          to = pool().node(atomic_load<Order::relaxed>(next_of(to)));
          filled = first_slot;
        }
        if (to != from || filled != slot) Own::put(to, filled, key, value);
        ++filled;
      }
      const u32 next = atomic_load<Order::relaxed>(next_of(from));
      if (next == kNoNode) break;
      from = pool().node(next);
    }
    if (done.marks == 0) return done;
    for (u32 left = empty_from(to, filled); left != kNoNode; ++done.nodes) {
      const u32 given = left;
      left = empty_from(pool().node(given), first_slot);
      pool().release(given);
    }
    return done;
  }

  /// Slots of all nodes, those of headers and of nodes that are not taken too: neither has a key.
  DG_FN u64 places() const { return (at.buckets + at.pool.size) * slots(); }

  DG_FN bool entry(u64 place, Key& key, Value& value) const {
    const u32 slot = static_cast<u32>(place) & (slots() - 1);
    if (slot < first_slot) return false;
    // A power of two.
    const u64 number = place >> lowest_one(slots());
    char* const node = number < at.buckets ? first_node(number)
                                           : pool().node(static_cast<u32>(number - at.buckets));
    Own::get(node, slot, key, value);
    return !is_reserved(key);
  }

 private:
  /// Makes the header look like slots that hold nothing and never will.
  DG_FN static void hide_header(Quarter& first) {
    DG_UNROLL
    for (u32 i = 0; i < first_slot; ++i) Slots::put(first, i, Mark<Key>::erased, Value{});
  }

  /// Empties a node from a slot on, and ends the chain there; gives what came behind it.
  DG_FN u32 empty_from(char* node, u32 filled) const {
    if constexpr (Own::has_ready_bits) {
      const u32 ready = ones_below(filled) & ~ones_below(first_slot);
      atomic_store<Order::relaxed>(auxiliary_of(node), ~ready);
    }
    for (u32 slot = filled; slot < slots(); ++slot) Own::wipe(node, slot);
    return atomic_exchange<Order::relaxed>(next_of(node), kNoNode);
  }
};

/// A table of one value a key, or of keys alone.
template <class KeyType, class ValueType>
struct Supernode : UniqueKeys<NodeChains<KeyType, ValueType>> {};

}  // namespace dg

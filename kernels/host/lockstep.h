/// Tests only: a tile of host threads that meet in every collective, as the lanes of a warp do.
///
/// It runs the warp-cooperative paths of the kernels without a GPU. Include it before launch/*.cuh,
/// with DG_LOCKSTEP defined. Votes and shuffles order no memory here, as they order none on a GPU,
/// so that ThreadSanitizer sees a missing Tile::sync(). Each lane says which collective it is in,
/// and the end of a row is one too: lanes that meet in different ones are divergent, which ends the
/// program.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/wide_word.cuh"

namespace dg::lockstep {

/// Exit status of a program whose lanes diverged.
inline constexpr int kDiverged = 70;

/// Tiles that run at once in each launch.
inline u32 tiles = 3;

enum class Collective : u32 { ballot, any, shuffle, match, sync, block_sync, end_of_row };

inline const char* name(Collective which) {
  constexpr const char* names[] = {
      "ballot", "any", "shuffle", "match", "sync", "a barrier of the block", "the end of the row"};
  return names[static_cast<u32>(which)];
}

template <u32 Width>
class Crew {
 public:
  /// Leaves `word` for the others and waits until all lanes have; `phase` is this lane's own count.
  void meet(u32 lane, u32& phase, Collective which, u64 word) {
    // Two sets of words: a lane that is ahead by one meeting does not touch what others still read.
    Words& words = words_[phase++ % 2];
    words.word[lane].store(word, std::memory_order_relaxed);
    words.which[lane].store(which, std::memory_order_relaxed);
    wait();
    for (u32 other = 0; other < Width; ++other) {
      const Collective theirs = words.which[other].load(std::memory_order_relaxed);
      if (theirs == which) continue;
      std::fprintf(stderr, "divergent collective: lane %u is in %s, lane %u in %s\n", lane,
                   name(which), other, name(theirs));
      std::_Exit(kDiverged);
    }
  }

  /// After a meeting: what `lane` left there.
  u64 word(u32 lane, u32 phase) const {
    return words_[(phase - 1) % 2].word[lane].load(std::memory_order_relaxed);
  }

  /// What lanes did before is seen by all after; the only meeting that orders memory.
  void publish(u32 lane) { published_[lane].fetch_add(1, std::memory_order_release); }
  void observe() {
    for (const auto& each : published_) static_cast<void>(each.load(std::memory_order_acquire));
  }

 private:
  struct Words {
    std::atomic<u64> word[Width];
    std::atomic<Collective> which[Width];
  };

  void wait() {
    const u32 turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_relaxed) + 1 == Width) {
      arrived_.store(0, std::memory_order_relaxed);
      hardware_fence();
      turn_.store(turn + 1, std::memory_order_relaxed);
    } else {
      while (turn_.load(std::memory_order_relaxed) == turn) sched_yield();
    }
    hardware_fence();
  }

  /// Orders the machine's accesses without telling ThreadSanitizer that anything is ordered.
  static void hardware_fence() {
#if defined(__aarch64__)
    asm volatile("dmb ish" ::: "memory");
#else
    asm volatile("" ::: "memory");
#endif
  }

  std::atomic<u32> arrived_{0}, turn_{0};
  Words words_[2];
  std::atomic<u64> published_[Width] = {};
};

template <u32 Width>
class LockstepTile {
 public:
  static constexpr u32 size = Width;

  LockstepTile(Crew<Width>& crew, u32 lane, u32& phase)
      : crew_(&crew), lane_(lane), phase_(&phase) {}

  u32 lane() const { return lane_; }

  u32 ballot(bool claim) const { return gather(Collective::ballot, claim, 1); }
  bool any(bool claim) const { return gather(Collective::any, claim, 1) != 0; }
  u32 match(u32 word) const { return gather(Collective::match, word, word); }

  template <u32 bits>
  u32 match_low(u32 word) const {
    return match(word & ((1u << bits) - 1));
  }

  template <class Word>
  Word shuffle(Word word, u32 source) const {
    static_assert(sizeof(Word) <= sizeof(u64));
    u64 bits = 0;
    std::memcpy(&bits, &word, sizeof word);
    crew_->meet(lane_, *phase_, Collective::shuffle, bits);
    bits = crew_->word(source % Width, *phase_);
    std::memcpy(&word, &bits, sizeof word);
    return word;
  }
  u128 shuffle(u128 word, u32 source) const {
    const u64 low = shuffle(word.low, source);
    return {low, shuffle(word.high, source)};
  }

  void sync() const {
    crew_->publish(lane_);
    crew_->meet(lane_, *phase_, Collective::sync, 0);
    crew_->observe();
  }

  void end_row() const { crew_->meet(lane_, *phase_, Collective::end_of_row, 0); }

  /// Before a barrier of the block: lanes of one tile that are elsewhere are divergent.
  void approach(Collective which) const { crew_->meet(lane_, *phase_, which, 0); }

 private:
  /// The lanes that brought `wanted`.
  u32 gather(Collective which, u64 word, u64 wanted) const {
    crew_->meet(lane_, *phase_, which, word);
    u32 lanes = 0;
    for (u32 lane = 0; lane < Width; ++lane)
      lanes |= static_cast<u32>(crew_->word(lane, *phase_) == wanted) << lane;
    return lanes;
  }

  Crew<Width>* crew_;
  u32 lane_;
  u32* phase_;
};

/// `run(body, n)` for each n below `count`, on threads of their own.
inline void on_threads(u32 count, void (*run)(const void*, u32), const void* body) {
  std::vector<std::thread> threads;
  for (u32 number = 0; number < count; ++number) threads.emplace_back(run, body, number);
  for (auto& thread : threads) thread.join();
}

/// The same for any body; a std::thread of each one's type would be half of what is compiled.
template <class Body>
void on_threads(u32 count, const Body& body) {
  on_threads(
      count, [](const void* of, u32 number) { (*static_cast<const Body*>(of))(number); }, &body);
}

template <u32 Width, class Body>
void for_each_tile(u64 rows, const Body& body) {
  std::vector<Crew<Width>> crews(tiles);
  on_threads(tiles * Width, [&](u32 thread) {
    const u32 tile = thread / Width, lane = thread % Width;
    u32 phase = 0;
    const LockstepTile<Width> mine(crews[tile], lane, phase);
    for (u64 row = tile; row < rows; row += tiles) {
      body(mine, row);
      mine.end_row();
    }
  });
}

/// Two tiles of half the threads each; one thread is a block of one tile.
template <u32 Threads>
class LockstepBlock {
 public:
  static constexpr u32 threads = Threads;
  static constexpr u32 tiles = Threads == 1 ? 1 : 2;
  using Lanes = LockstepTile<Threads / tiles>;

  struct Crews {
    Crew<Threads> block;
    Crew<Threads / tiles> of_tile[tiles];
  };

  LockstepBlock(Crews& crews, u32 thread, u32& block_phase, u32& tile_phase)
      : crew_(&crews.block),
        thread_(thread),
        phase_(&block_phase),
        tile_(crews.of_tile[thread / Lanes::size], thread % Lanes::size, tile_phase) {}

  u32 thread() const { return thread_; }
  Lanes tile() const { return tile_; }
  u32 tile_index() const { return thread_ / Lanes::size; }

  void sync() const {
    tile_.approach(Collective::block_sync);
    crew_->publish(thread_);
    crew_->meet(thread_, *phase_, Collective::block_sync, 0);
    crew_->observe();
  }

  void add(u32* counter, u32 term) const {
    std::atomic_ref<u32>(*counter).fetch_add(term, std::memory_order_relaxed);
  }

  void store(u64* to, u64 word) const {
    std::atomic_ref<u64>(*to).store(word, std::memory_order_relaxed);
  }

  void end_segment() const {
    tile_.approach(Collective::end_of_row);
    crew_->meet(thread_, *phase_, Collective::end_of_row, 0);
  }

 private:
  Crew<Threads>* crew_;
  u32 thread_;
  u32* phase_;
  Lanes tile_;
};

template <class Block, template <class> class Shared>
struct Running {
  typename Block::Crews crews;
  Shared<Block> shared;
};

template <u32 Threads, template <class> class Shared, class Body>
void for_each_block(u64 segments, const Body& body) {
  using Block = LockstepBlock<Threads>;
  std::vector<Running<Block, Shared>> running(tiles);
  on_threads(tiles * Threads, [&](u32 number) {
    const u32 block = number / Threads, thread = number % Threads;
    u32 block_phase = 0, tile_phase = 0;
    auto& here = running[block];
    const Block mine(here.crews, thread, block_phase, tile_phase);
    for (u64 segment = block; segment < segments; segment += tiles) {
      body(mine, here.shared, segment);
      mine.end_segment();
    }
  });
}

}  // namespace dg::lockstep

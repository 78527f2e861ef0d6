#include "host/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "grid/for_each.cuh"

namespace dg {
namespace {

// In units of a lookup: less is not worth waking a thread, and no piece is larger.
constexpr u64 kInlineWork = 8192;
constexpr u64 kPieceWork = 16384;

struct Job {
  void (*run)(const void*, u64, u64);
  const void* context;
  u64 rows;
  u64 piece_rows;
  std::atomic<u64> next{0};
  u64 helpers = 0;  // guarded by the pool's mutex

  void work() {
    for (u64 first; (first = next.fetch_add(piece_rows, std::memory_order_relaxed)) < rows;)
      run(context, first, std::min(first + piece_rows, rows));
  }
};

/// Several launches may run at once: each caller works on its own job, idle workers help the
/// oldest.
class Pool {
 public:
  explicit Pool(unsigned count) {
    workers_.reserve(count);
    try {
      for (unsigned i = 1; i < count; ++i) workers_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      // Those that were started do the work.
    }
  }

  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    work_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  unsigned size() const { return static_cast<unsigned>(workers_.size()) + 1; }

  void run(Job& job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
    }
    work_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    // After this no worker finds the job; those that hold it are waited for.
    std::erase(jobs_, &job);
    done_.wait(lock, [&] { return job.helpers == 0; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
      if (closing_) return;
      Job* job = jobs_.front();
      ++job->helpers;
      lock.unlock();
      job->work();
      lock.lock();
      // Its pieces are all handed out.
      std::erase(jobs_, job);
      if (--job->helpers == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<Job*> jobs_;
  bool closing_ = false;
  std::vector<std::thread> workers_;
};

unsigned default_threads() {
  if (const char* text = std::getenv("DGPUHASH_NUM_THREADS")) {
    const long count = std::strtol(text, nullptr, 10);
    if (count > 0) return static_cast<unsigned>(std::min(count, 1024L));
  }
  // What the process may use, which taskset and batch systems make fewer than the machine has.
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) == 0)
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&usable)));
  return std::max(1u, std::thread::hardware_concurrency());
}

/// Lives until the process ends, because worker threads of other modules may still launch while it
/// does.
struct Holder {
  std::mutex mutex;
  std::shared_ptr<Pool> pool;
  unsigned wanted = 0;
};

/// Made when the extension is loaded: a child that is forked while another thread makes it would
/// wait for that thread.
std::atomic<Holder*> holder{new Holder};

/// A forked child has none of its parent's threads: it starts with a new holder and leaks the
/// parent's, whose mutexes may be locked for ever. Launches that were in progress in other threads
/// do not exist in the child.
void forget_in_child() {
  const Holder* parent = holder.load(std::memory_order_relaxed);
  auto* fresh = new Holder;
  fresh->wanted = parent->wanted;
  holder.store(fresh, std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, forget_in_child);

Holder& held() { return *holder.load(std::memory_order_acquire); }

std::shared_ptr<Pool> pool() {
  Holder& here = held();
  std::lock_guard lock(here.mutex);
  if (!here.pool) here.pool = std::make_shared<Pool>(here.wanted ? here.wanted : default_threads());
  return here.pool;
}

}  // namespace

unsigned threads() { return pool()->size(); }

void set_threads(unsigned count) {
  std::shared_ptr<Pool> old;  // joined after the lock is given back
  Holder& here = held();
  std::lock_guard lock(here.mutex);
  here.wanted = count;
  old.swap(here.pool);
}

void parallel_for(u64 rows, u64 row_work, void (*run)(const void*, u64, u64), const void* context) {
  if (rows == 0) return;
  if (rows == 1 || rows <= kInlineWork / row_work) return run(context, 0, rows);
  const auto using_pool = pool();
  const u64 threads = using_pool->size();
  if (threads == 1) return run(context, 0, rows);
  // Small pieces even out rows of unequal cost; large ones keep the counter out of the way.
  const u64 even = (rows + 4 * threads - 1) / (4 * threads);
  const u64 least = 1 + (kInlineWork / 4) / row_work, most = 1 + kPieceWork / row_work;
  Job job{run, context, rows, std::clamp(even, least, most)};
  using_pool->run(job);
}

}  // namespace dg

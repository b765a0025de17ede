// Distributes work to several threads.

#ifndef SAXML_EXT_ENGINE_KERNELS_THREADS_H_
#define SAXML_EXT_ENGINE_KERNELS_THREADS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace saxml_kernels {

// A thread that is put to sleep may need this long to wake up. A product of one
// row takes about as long, so its last parts are waited for awake.
constexpr std::chrono::microseconds kAwake(50);

// Calls work(begin, end) for parts of [0, count) on the threads of `pool` and
// on this one. Each part but the last is a multiple of `step`. It returns when
// all parts are done. It never waits for a thread that has not started, because
// the pool may be busy with work that waits for this call.
template <typename Work>
void ForAll(xla::ffi::ThreadPool& pool, int64_t count, int64_t step,
            const Work& work) {
  int64_t threads = pool.num_threads();
  const int64_t steps = (count + step - 1) / step;
  if (threads > steps) threads = steps;
  if (threads <= 1) return work(0, count);

  struct Shared {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
    std::mutex mutex;
    std::condition_variable changed;
  };
  const auto shared = std::make_shared<Shared>();
  // Each thread gets several parts, because some threads may be slower.
  const int64_t part = (steps + 4 * threads - 1) / (4 * threads) * step;
  // A thread that starts too late finds no part and does not use `work`.
  const std::function<void()> help = [shared, part, count, &work] {
    for (;;) {
      const int64_t begin = shared->next.fetch_add(part);
      if (begin >= count) return;
      const int64_t end = begin + part < count ? begin + part : count;
      work(begin, end);
      if (shared->done.fetch_add(end - begin) + end - begin == count) {
        const std::lock_guard<std::mutex> lock(shared->mutex);
        shared->changed.notify_all();
      }
    }
  };
  for (int64_t i = 1; i < threads; ++i) {
    pool.Schedule(std::function<void()>(help));
  }
  help();
  using Clock = std::chrono::steady_clock;
  const auto is_done = [&] { return shared->done == count; };
  for (const auto end = Clock::now() + kAwake; Clock::now() < end;) {
    if (is_done()) return;
    std::this_thread::yield();  // On a busy machine, others run.
  }
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->changed.wait(lock, is_done);
}

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_THREADS_H_

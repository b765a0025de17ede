// Measures rates per CPU second of one core.

#ifndef BENCHMARKS_PEAKS_RATES_H_
#define BENCHMARKS_PEAKS_RATES_H_

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

namespace benchmarks {

constexpr double kLeastSeconds = 0.05;
constexpr int kTrials = 5;

inline double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

// Returns the work per CPU second if one call of `work` does `amount`.
template <typename Work>
double Rate(double amount, Work work) {
  double best = 0;
  work();
  for (int trial = 0; trial < kTrials; ++trial) {
    const double begin = CpuSeconds();
    double spent = 0;
    int calls = 0;
    do {
      work();
      ++calls;
      spent = CpuSeconds() - begin;
    } while (spent < kLeastSeconds);
    best = std::max(best, amount * calls / spent);
  }
  return best;
}

// Reads whole cache lines through eight sums.
__attribute__((target("avx2"))) inline void Read(const void* buffer,
                                                  int64_t size) {
  __m256i sums[8] = {};
  const char* at = static_cast<const char*>(buffer);
  for (const char* const end = at + size / 256 * 256; at < end; at += 256) {
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) {
      asm volatile("vpaddd %1, %0, %0"
                   : "+x"(sums[i])
                   : "m"(*reinterpret_cast<const __m256i_u*>(at + 32 * i)));
    }
  }
}

}  // namespace benchmarks

#endif  // BENCHMARKS_PEAKS_RATES_H_

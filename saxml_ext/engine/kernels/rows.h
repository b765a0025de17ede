// Products of a few rows with a matrix that is read in memory order. For
// translation units that are compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_ROWS_H_
#define SAXML_EXT_ENGINE_KERNELS_ROWS_H_

#include <cstdint>

#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// Letters: Q rows of factors, D rows of the matrix that are read together.

// The kind of prefetch: none, D rows, or the same amount line by line. The
// processor detects the last pattern and reads ahead by itself (25 GB/s instead
// of 20 with four rows of factors).
enum class Fetching { kNothing, kRows, kLines };

// Adds to sums [Q, width] the products of factors [Q, D] and the rows [D,
// width] that begin at `row(0)` to `row(D - 1)`. Prefetches `ahead(d)`.
template <Fetching fetching, int Q, int D, typename Row, typename AheadRow>
KERNEL void AddRows(const float* factors, int64_t factor_stride, Row row,
                    AheadRow ahead, int64_t width, float* sums,
                    int64_t stride) {
  constexpr int64_t kItems = 64 / sizeof(*row(0));
  Floats factor[Q][D];
  for (int q = 0; q < Q; ++q) {
    for (int d = 0; d < D; ++d) {
      factor[q][d] = All(factors[q * factor_stride + d]);
    }
  }
  int64_t n = 0;
  for (; n + kLanes <= width; n += kLanes) {
    Floats items[D];
    for (int d = 0; d < D; ++d) {
      if (fetching != Fetching::kNothing && n % kItems == 0) {
        __builtin_prefetch(fetching == Fetching::kLines
                               ? ahead(0) + n * D + d * kItems
                               : ahead(d) + n);
      }
      items[d] = Load(row(d) + n);
    }
    for (int q = 0; q < Q; ++q) {
      Floats sum = Load(sums + q * stride + n);
      for (int d = 0; d < D; ++d) sum += factor[q][d] * items[d];
      Store(sums + q * stride + n, sum);
    }
  }
  for (; n < width; ++n) {
    for (int q = 0; q < Q; ++q) {
      float sum = sums[q * stride + n];
      for (int d = 0; d < D; ++d) sum += factor[q][d][0] * One(row(d)[n]);
      sums[q * stride + n] = sum;
    }
  }
}

// The number of rows of the matrix that are read together with Q rows of
// factors. Sums are read and written less often than rows are read. The factors
// of these rows are in registers.
template <int Q>
constexpr int kTogether = kSums / Q < 4 ? kSums / Q : 4;

// Does the same as AddRows for `count` rows.
template <Fetching fetching, int Q, typename Row, typename AheadRow>
KERNEL void AddAllRows(const float* factors, int64_t factor_stride,
                       int64_t count, Row row, AheadRow ahead, int64_t width,
                       float* sums, int64_t stride) {
  constexpr int D = kTogether<Q>;
  int64_t i = 0;
  const auto row_at_i = [&](int d) { return row(i + d); };
  const auto ahead_at_i = [&](int d) { return ahead(i + d); };
  for (; i + D <= count; i += D) {
    AddRows<fetching, Q, D>(factors + i, factor_stride, row_at_i, ahead_at_i,
                            width, sums, stride);
  }
  for (; i < count; ++i) {
    AddRows<fetching, Q, 1>(factors + i, factor_stride, row_at_i, ahead_at_i,
                            width, sums, stride);
  }
}

// Returns the address `distance` rows after row i. The rows at `next` follow
// the last of the `count` rows.
template <typename T>
KERNEL const T* Ahead(const T* rows, const T* next, int64_t count,
                      int64_t stride, int64_t i, int64_t distance) {
  i += distance;
  return i < count ? rows + i * stride : next + (i - count) * stride;
}

// The distance of the prefetch in rows. At 10 bytes per cycle the memory
// latency is about 4 KiB, and other cores may use the memory too.
template <typename T>
KERNEL int64_t RowsAhead(int64_t width, int64_t count) {
  constexpr int64_t kBytesAhead = 12288;
  const int64_t rows = kBytesAhead / (width * (int64_t)sizeof(T)) + 1;
  return rows < count ? rows : count;
}

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ROWS_H_

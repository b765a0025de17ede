// Products of a few rows with a matrix that is read in the order of memory. For
// units that are compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_ROWS_H_
#define SAXML_EXT_ENGINE_KERNELS_ROWS_H_

#include <cstdint>

#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// Letters: Q rows of factors, D rows of the matrix that are read together.

// What is fetched meanwhile: nothing; D rows; or as much, one line of memory
// after the other, which the processor notices and reads ahead by itself (25
// GB/s instead of 20 with four rows of factors).
enum class Fetching { kNothing, kRows, kLines };

// Adds to sums [Q, width] the products of factors [Q, D] and the rows [D,
// width] that begin at `row(0)` to `row(D - 1)`. Fetches `ahead(d)`.
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

// Rows of the matrix that are read together with Q rows of factors: sums are
// read and written less often than rows are read. Their factors are in
// registers.
template <int Q>
constexpr int kTogether = kSums / Q < 4 ? kSums / Q : 4;

// As AddRows, for `count` rows.
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

// Where what is `distance` rows behind row i of `count` lies, if `next` comes
// behind the last of them.
template <typename T>
KERNEL const T* Ahead(const T* rows, const T* next, int64_t count,
                      int64_t stride, int64_t i, int64_t distance) {
  i += distance;
  return i < count ? rows + i * stride : next + (i - count) * stride;
}

// How many rows before their use they are fetched: at 10 bytes a cycle memory
// answers within some 4 KiB, and other cores may be waiting for it too.
template <typename T>
KERNEL int64_t RowsAhead(int64_t width, int64_t count) {
  constexpr int64_t kBytesAhead = 12288;
  const int64_t rows = kBytesAhead / (width * (int64_t)sizeof(T)) + 1;
  return rows < count ? rows : count;
}

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ROWS_H_

// Products of the queries of many beams with a prompt. A panel is a contiguous
// copy of a part of the prompt's keys or values, as floats. It is made once,
// and stays in the nearest cache while all groups of queries use it. For
// translation units that are compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_ATTENTION_PANELS_H_
#define SAXML_EXT_ENGINE_KERNELS_ATTENTION_PANELS_H_

#include <cstdint>

#include "saxml_ext/engine/kernels/attention_tiles.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// Letters: Q queries, C vectors of columns, H head width.

// The vectors in a row of a panel. With kQueries queries their sums fill the
// registers.
constexpr int kAcross = kSums / kQueries;
constexpr int64_t kPanelWidth = kAcross * kLanes;
// The rows of a panel of values, for 32 KiB of floats.
constexpr int64_t kPanelRows = 8192 / kPanelWidth;

// Copies [rows, columns] to a panel [rows, kPanelWidth], padded with zeros. It
// prefetches the columns to the right, which become the next panel.
template <typename T>
KERNEL void Pack(const T* from, int64_t stride, int64_t rows, int64_t columns,
                 const float* row_scales, const float* column_scales,
                 float* panel) {
  for (int64_t r = 0; r < rows; ++r, from += stride, panel += kPanelWidth) {
    Fetch<kPanelWidth>(from + kPanelWidth);
    int64_t n = 0;
    for (; n + kLanes <= columns; n += kLanes) {
      Floats some = Load(from + n);
      if (row_scales != nullptr) some *= row_scales[r];
      if (column_scales != nullptr) some *= Load(column_scales + n);
      Store(panel + n, some);
    }
    for (; n < columns; ++n) {
      panel[n] = One(from[n]);
      if (row_scales != nullptr) panel[n] *= row_scales[r];
      if (column_scales != nullptr) panel[n] *= column_scales[n];
    }
    for (; n < kPanelWidth; ++n) panel[n] = 0;
  }
}

// Computes scores [Q, kPanelWidth] of queries [Q, H] and a panel of keys [H,
// columns].
template <int Q>
KERNEL void ScoreTile(const float* queries, int64_t head_dim,
                      const float* panel, float* scores, int64_t stride) {
  Floats sums[Q][kAcross] = {};
  for (int64_t h = 0; h < head_dim; ++h, panel += kPanelWidth) {
    for (int q = 0; q < Q; ++q) {
      const Floats query = All(queries[q * head_dim + h]);
      for (int c = 0; c < kAcross; ++c) {
        sums[q][c] += query * Load(panel + c * kLanes);
      }
    }
  }
  for (int q = 0; q < Q; ++q) {
    for (int c = 0; c < kAcross; ++c) {
      Store(scores + q * stride + c * kLanes, sums[q][c]);
    }
  }
}

// mixed [Q, C * kLanes] += weights [Q, rows] times a panel of values.
template <int Q, int C>
KERNEL void MixColumns(const float* weights, int64_t stride, const float* panel,
                       int64_t rows, float* mixed, int64_t head_dim) {
  Floats sums[Q][C];
  for (int q = 0; q < Q; ++q) {
    for (int c = 0; c < C; ++c) {
      sums[q][c] = Load(mixed + q * head_dim + c * kLanes);
    }
  }
  for (int64_t t = 0; t < rows; ++t, panel += kPanelWidth) {
    for (int q = 0; q < Q; ++q) {
      const Floats weight = All(weights[q * stride + t]);
      for (int c = 0; c < C; ++c) {
        sums[q][c] += weight * Load(panel + c * kLanes);
      }
    }
  }
  for (int q = 0; q < Q; ++q) {
    for (int c = 0; c < C; ++c) {
      Store(mixed + q * head_dim + c * kLanes, sums[q][c]);
    }
  }
}

// Does the same for the `left` columns of a head that remain, in whole vectors.
template <int Q>
KERNEL void MixRows(const float* weights, int64_t stride, const float* panel,
                    int64_t rows, float* mixed, int64_t head_dim,
                    int64_t left) {
  if (left >= kPanelWidth) {
    MixColumns<Q, kAcross>(weights, stride, panel, rows, mixed, head_dim);
    return;
  }
  for (int64_t n = 0; n < left; n += kLanes) {
    MixColumns<Q, 1>(weights, stride, panel + n, rows, mixed + n, head_dim);
  }
}

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ATTENTION_PANELS_H_

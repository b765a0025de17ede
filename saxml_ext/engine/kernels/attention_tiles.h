// The inner loops of attention: scores of keys, their softmax, and the weighted
// sum of values. For translation units that are compiled for one kind of
// processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_ATTENTION_TILES_H_
#define SAXML_EXT_ENGINE_KERNELS_ATTENTION_TILES_H_

#include <cstdint>
#include <cstring>

#include "saxml_ext/engine/kernels/rows.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// Letters: Q queries, C vectors of columns, H head width.

// The number of queries multiplied together. More sums would not fit in
// registers.
constexpr int kQueries = 4;
// Replaces masked scores, because exp() of it is exactly 0.
constexpr float kMasked = -1e30f;

// Prefetches `count` numbers that are read next. The processor cannot predict
// the next block (26 GB/s with the prefetch, 19 without).
template <int64_t count, typename T>
KERNEL void Fetch(const T* from) {
  for (int64_t i = 0; i < count * (int64_t)sizeof(T); i += 64) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + i);
  }
}

// Computes the scores of the first `count` columns of `keys` [H, length].
template <int Q, typename T>
KERNEL void Score(const float* queries, int64_t head_dim, const T* keys,
                  const float* scales, int64_t length, int64_t count,
                  const T* next, float* scores, int64_t stride) {
  for (int q = 0; q < Q; ++q) {
    memset(scores + q * stride, 0, count * sizeof(float));
  }
  const int64_t distance = RowsAhead<T>(count, head_dim);
  const auto row = [=](int64_t h) { return keys + h * length; };
  const auto ahead = [=](int64_t h) {
    return Ahead(keys, next, head_dim, length, h, distance);
  };
  if (count == length) {
    AddAllRows<Fetching::kLines, Q>(queries, head_dim, head_dim, row, ahead,
                                    count, scores, stride);
  } else {
    AddAllRows<Fetching::kRows, Q>(queries, head_dim, head_dim, row, ahead,
                                   count, scores, stride);
  }
  if (scales == nullptr) return;
  for (int q = 0; q < Q; ++q) {
    for (int64_t t = 0; t < count; ++t) scores[q * stride + t] *= scales[t];
  }
}

// Computes the scores [Q] of queries [Q, H], each with its own key [H].
template <int Q, typename T>
KERNEL void ScoreRow(const float* queries, int64_t head_dim,
                     const T* const (&keys)[Q], float* scores, int64_t stride) {
  Floats sums[kQueries] = {};
  int64_t h = 0;
  for (; h + kLanes <= head_dim; h += kLanes) {
    for (int q = 0; q < Q; ++q) {
      sums[q] += Load(queries + q * head_dim + h) * Load(keys[q] + h);
    }
  }
  const Floats totals = SumsOf(sums[0], sums[1], sums[2], sums[3]);
  for (int q = 0; q < Q; ++q) {
    float sum = totals[q];
    for (int64_t i = h; i < head_dim; ++i) {
      sum += queries[q * head_dim + i] * One(keys[q][i]);
    }
    scores[q * stride] = sum;
  }
}

// mixed [Q, C * kLanes] += weights [Q, count] times values. The row of values
// for query q and column t begins at `row(t, q)`. The function prefetches
// `ahead(t)`.
template <int Q, int C, typename Row, typename AheadRow>
KERNEL void MixTile(const float* weights, int64_t stride, int64_t head_dim,
                    int64_t count, Row row, AheadRow ahead, float* mixed) {
  Floats sums[Q][C];
  for (int q = 0; q < Q; ++q) {
    for (int c = 0; c < C; ++c) {
      sums[q][c] = Load(mixed + q * head_dim + c * kLanes);
    }
  }
  for (int64_t t = 0; t < count; ++t) {
    Fetch<C * kLanes>(ahead(t));
    for (int q = 0; q < Q; ++q) {
      const auto* value = row(t, q);
      const Floats weight = All(weights[q * stride + t]);
      for (int c = 0; c < C; ++c) {
        sums[q][c] += weight * Load(value + c * kLanes);
      }
    }
  }
  for (int q = 0; q < Q; ++q) {
    for (int c = 0; c < C; ++c) {
      Store(mixed + q * head_dim + c * kLanes, sums[q][c]);
    }
  }
}

// mixed [Q, H] += weights [Q, count] times values; see MixTile.
template <int Q, typename Row, typename AheadRow>
KERNEL void Mix(const float* weights, int64_t stride, int64_t head_dim,
                int64_t count, Row row, AheadRow ahead, float* mixed) {
  constexpr int kTile = kSums / Q;
  int64_t h = 0;
  const auto row_at_h = [&](int64_t t, int q) { return row(t, q) + h; };
  const auto ahead_at_h = [&](int64_t t) { return ahead(t) + h; };
  for (; h + kTile * kLanes <= head_dim; h += kTile * kLanes) {
    MixTile<Q, kTile>(weights, stride, head_dim, count, row_at_h, ahead_at_h,
                      mixed + h);
  }
  for (; h + kLanes <= head_dim; h += kLanes) {
    MixTile<Q, 1>(weights, stride, head_dim, count, row_at_h, ahead_at_h,
                  mixed + h);
  }
  for (; h < head_dim; ++h) {
    for (int64_t t = 0; t < count; ++t) {
      for (int q = 0; q < Q; ++q) {
        mixed[q * head_dim + h] +=
            weights[q * stride + t] * One(*row_at_h(t, q));
      }
    }
  }
}

// Computes the softmax of scores [count]. It writes up to kLanes elements after
// them.
KERNEL void Softmax(float* scores, int64_t count) {
  for (int i = 0; i < kLanes; ++i) scores[count + i] = kMasked;
  Floats peaks = All(kMasked);
  for (int64_t t = 0; t < count; t += kLanes) {
    peaks = Max(peaks, Load(scores + t));
  }
  const float peak = MaxOf(peaks);
  Floats sums = {};
  for (int64_t t = 0; t < count; t += kLanes) {
    const Floats weights = Exp(Load(scores + t) - peak);
    Store(scores + t, weights);
    sums += weights;
  }
  const float share = 1 / SumOf(sums);
  for (int64_t t = 0; t < count; t += kLanes) {
    Store(scores + t, Load(scores + t) * share);
  }
}

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ATTENTION_TILES_H_

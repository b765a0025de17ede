// Compiled once for each kind of processor. MULTIPLY_FLOATS is the name of the
// function.
//
// Weights [K, N] are added to the sums row by row, weighted by the activations.
// Weights [N, K] are multiplied with the activations lane by lane.

#include "saxml_ext/engine/kernels/float_product.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "saxml_ext/engine/kernels/rows.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// The number of rows of activations multiplied together, and the maximum for
// one pass over the weights. Their sums for kFloatOutputs outputs are 32 KiB.
constexpr int kQueries = 4;
constexpr int64_t kRows = 8;
// For weights [N, K]: the number of outputs computed together, and the distance
// of the prefetch in numbers.
constexpr int kDots = kSums / kQueries;
constexpr int64_t kAhead = 4096;

template <int count>
using Number = std::integral_constant<int, count>;

// W is the type of the weights, float or BFloat16.
template <typename W>
KERNEL const W* WeightsOf(const FloatProduct& args) {
  return static_cast<const W*>(args.weights);
}

// Adds `D` rows of weights from row `k` on to the sums [M, kFloatOutputs].
template <typename W, int D>
KERNEL void AddWeights(const FloatProduct& args, const float* x, int64_t rows,
                       int64_t output, int64_t width, int64_t k, float* sums) {
  const int64_t size = args.size, stride = args.outputs;
  const W* const weights = WeightsOf<W>(args) + output;
  const int64_t distance = RowsAhead<W>(width, size);
  const auto row = [=](int d) { return weights + (k + d) * stride; };
  const auto ahead = [=](int d) {
    return Ahead(weights, weights + width, size, stride, k + d, distance);
  };
  const auto add = [&](auto count, int64_t m) {
    // One prefetch is enough.
    if (m == 0) {
      AddRows<Fetching::kRows, count.value, D>(x + k, size, row, ahead, width,
                                               sums, kFloatOutputs);
    } else {
      AddRows<Fetching::kNothing, count.value, D>(
          x + m * size + k, size, row, ahead, width, sums + m * kFloatOutputs,
          kFloatOutputs);
    }
  };
  int64_t m = 0;
  for (; m + kQueries <= rows; m += kQueries) add(Number<kQueries>(), m);
  if (rows - m == 3) add(Number<3>(), m);
  if (rows - m == 2) add(Number<2>(), m);
  if (rows - m == 1) add(Number<1>(), m);
}

// Computes some rows times `width` outputs of weights [K, N].
template <typename W>
void ByRows(const FloatProduct& args, int64_t first, int64_t rows,
            int64_t output, int64_t width) {
  constexpr int D = kTogether<kQueries>;
  const float* const x = args.x + first * args.size;
  alignas(64) float sums[kRows * kFloatOutputs];
  memset(sums, 0, rows * kFloatOutputs * sizeof(float));
  int64_t k = 0;
  for (; k + D <= args.size; k += D) {
    AddWeights<W, D>(args, x, rows, output, width, k, sums);
  }
  for (; k < args.size; ++k) {
    AddWeights<W, 1>(args, x, rows, output, width, k, sums);
  }
  for (int64_t m = 0; m < rows; ++m) {
    float* const result = args.result + (first + m) * args.outputs + output;
    for (int64_t n = 0; n < width; ++n) {
      result[n] = sums[m * kFloatOutputs + n] + args.bias[output + n];
    }
  }
}

// Computes Q rows from `first` on times C <= 4 outputs of weights [N, K].
template <typename W, int Q, int C>
KERNEL void Dots(const FloatProduct& args, int64_t first, int64_t output) {
  const int64_t size = args.size;
  const float* const x = args.x + first * size;
  const W* const weights = WeightsOf<W>(args) + output * size;
  Floats sums[Q][4] = {};
  int64_t k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    Floats items[C];
    for (int c = 0; c < C; ++c) {
      __builtin_prefetch(weights + c * size + k + kAhead);
      items[c] = Load(weights + c * size + k);
    }
    for (int q = 0; q < Q; ++q) {
      const Floats some = Load(x + q * size + k);
      for (int c = 0; c < C; ++c) sums[q][c] += some * items[c];
    }
  }
  for (int q = 0; q < Q; ++q) {
    const Floats totals =
        SumsOf(sums[q][0], sums[q][1], sums[q][2], sums[q][3]);
    float* const result = args.result + (first + q) * args.outputs + output;
    for (int c = 0; c < C; ++c) {
      float sum = totals[c];
      for (int64_t i = k; i < size; ++i) {
        sum += x[q * size + i] * One(weights[c * size + i]);
      }
      result[c] = sum + args.bias[output + c];
    }
  }
}

// Computes all rows times C outputs of weights [N, K].
template <typename W, int C>
KERNEL void AllDots(const FloatProduct& args, int64_t output) {
  int64_t m = 0;
  for (; m + kQueries <= args.rows; m += kQueries) {
    Dots<W, kQueries, C>(args, m, output);
  }
  if (args.rows - m == 3) Dots<W, 3, C>(args, m, output);
  if (args.rows - m == 2) Dots<W, 2, C>(args, m, output);
  if (args.rows - m == 1) Dots<W, 1, C>(args, m, output);
}

template <typename W>
void MultiplyParts(const FloatProduct& args, int64_t begin, int64_t end) {
  int64_t output = begin * kFloatOutputs, last = end * kFloatOutputs;
  if (last > args.outputs) last = args.outputs;
  if (args.outputs_first) {
    for (; output + kDots <= last; output += kDots) {
      AllDots<W, kDots>(args, output);
    }
    for (; output < last; ++output) AllDots<W, 1>(args, output);
    return;
  }
  for (; output < last; output += kFloatOutputs) {
    const int64_t left = last - output;
    const int64_t width = left < kFloatOutputs ? left : kFloatOutputs;
    for (int64_t m = 0; m < args.rows; m += kRows) {
      const int64_t rows = args.rows - m < kRows ? args.rows - m : kRows;
      ByRows<W>(args, m, rows, output, width);
    }
  }
}

}  // namespace

void MULTIPLY_FLOATS(const FloatProduct& args, int64_t begin, int64_t end) {
  if (args.bfloat16) {
    MultiplyParts<BFloat16>(args, begin, end);
  } else {
    MultiplyParts<float>(args, begin, end);
  }
}

}  // namespace saxml_kernels

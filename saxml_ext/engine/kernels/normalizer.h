// Computes the log-probabilities of a row of logits. For translation units that
// are compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_NORMALIZER_H_
#define SAXML_EXT_ENGINE_KERNELS_NORMALIZER_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// The logit of a token that may not be chosen.
constexpr float kBarred = -std::numeric_limits<float>::infinity();

// Returns the logarithm of the sum of exp(logit - peak).
KERNEL float LogTotal(const float* logits, int64_t count, float peak) {
  constexpr int64_t kVectors = 4;
  constexpr int64_t kBlock = kVectors * kLanes;
  double total = 0;
  int64_t i = 0;
  while (i + kBlock <= count) {
    // Short partial sums have smaller rounding errors than one long sum.
    Floats sums[kVectors] = {};
    for (int n = 0; n < 16 && i + kBlock <= count; ++n, i += kBlock) {
      for (int j = 0; j < kVectors; ++j) {
        sums[j] += Exp(Load(logits + i + j * kLanes) - peak);
      }
    }
    total += SumOf((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  for (; i < count; ++i) total += std::exp(logits[i] - peak);
  return std::log(total);
}

// Returns true if a token is one of the excluded tokens [E].
KERNEL bool IsAmong(const int32_t* barred, int64_t count, int32_t token) {
  for (int64_t i = 0; i < count; ++i) {
    if (barred[i] == token) return true;
  }
  return false;
}

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_NORMALIZER_H_

// Finds the likeliest tokens of a row of logits. For translation units that are
// compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_BEST_H_
#define SAXML_EXT_ENGINE_KERNELS_BEST_H_

#include <cstdint>

#include "saxml_ext/engine/kernels/normalizer.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// Returns the largest of some logits.
KERNEL float PeakOf(const float* logits, int64_t count) {
  float peak = kBarred;
  int64_t i = 0;
  if (count >= kLanes) {
    Floats peaks = Load(logits);
    for (i = kLanes; i + kLanes <= count; i += kLanes) {
      peaks = Max(peaks, Load(logits + i));
    }
    peak = MaxOf(peaks);
  }
  for (; i < count; ++i) peak = logits[i] > peak ? logits[i] : peak;
  return peak;
}

// The likeliest tokens of one row found so far, best first.
class Best {
 public:
  // `values` and `tokens` have places for `most` of them.
  Best(int64_t most, float* values, int32_t* tokens)
      : most_(most), values_(values), tokens_(tokens) {}

  // Returns true if a logit belongs to them. Its token must come after theirs.
  bool Wants(float logit) const {
    return count_ < most_ || logit > values_[most_ - 1];
  }

  void Add(float logit, int32_t token) {
    int64_t place = count_ < most_ ? count_++ : most_ - 1;
    for (; place > 0 && logit > values_[place - 1]; --place) {
      values_[place] = values_[place - 1];
      tokens_[place] = tokens_[place - 1];
    }
    values_[place] = logit;
    tokens_[place] = token;
  }

 private:
  const int64_t most_;
  int64_t count_ = 0;
  float* const values_;
  int32_t* const tokens_;
};

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_BEST_H_

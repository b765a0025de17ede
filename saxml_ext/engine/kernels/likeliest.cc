// Compiled once for each kind of processor. FIND_LIKELIEST is the name of the
// function.

#include "saxml_ext/engine/kernels/likeliest.h"

#include <cstdint>

#include "saxml_ext/engine/kernels/normalizer.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// The number of logits that are skipped if their maximum is too small.
constexpr int64_t kBlock = 4 * kLanes;

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
  Best(const Likeliest& args, int64_t row)
      : most_(args.count),
        values_(args.values + row * args.count),
        tokens_(args.tokens + row * args.count) {}

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

void FindInRow(const Likeliest& args, int64_t row) {
  const float* logits = args.logits + row * args.vocabulary;
  const int32_t* barred =
      args.barred + row / args.rows_per_slot * args.most_barred;
  Best best(args, row);
  float peak = kBarred;
  for (int64_t begin = 0; begin < args.vocabulary; begin += kBlock) {
    const int64_t left = args.vocabulary - begin;
    const int64_t count = left < kBlock ? left : kBlock;
    const float largest = PeakOf(logits + begin, count);
    if (largest > peak) peak = largest;
    if (!best.Wants(largest)) continue;
    for (int64_t token = begin; token < begin + count; ++token) {
      if (!best.Wants(logits[token])) continue;
      const bool out = IsAmong(barred, args.most_barred, token);
      const float logit = out ? kBarred : logits[token];
      if (best.Wants(logit)) best.Add(logit, token);
    }
  }
  args.peaks[row] = peak;
  args.log_totals[row] = LogTotal(logits, args.vocabulary, peak);
}

}  // namespace

void FIND_LIKELIEST(const Likeliest& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) FindInRow(args, row);
}

}  // namespace saxml_kernels

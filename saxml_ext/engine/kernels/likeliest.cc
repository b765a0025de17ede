// Compiled once for each kind of processor. FIND_LIKELIEST is the name of the
// function.

#include "saxml_ext/engine/kernels/likeliest.h"

#include <cstdint>

#include "saxml_ext/engine/kernels/best.h"
#include "saxml_ext/engine/kernels/normalizer.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// The number of logits that are skipped if their maximum is too small.
constexpr int64_t kBlock = 4 * kLanes;

void FindInRow(const Likeliest& args, int64_t row) {
  const float* logits = args.logits + row * args.vocabulary;
  const int32_t* barred =
      args.barred + row / args.rows_per_slot * args.most_barred;
  Best best(args.count, args.values + row * args.count,
            args.tokens + row * args.count);
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

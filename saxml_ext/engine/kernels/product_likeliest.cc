// Compiled once for each kind of processor. Compiler options set the names of
// the functions: MULTIPLY, MULTIPLY_LIKELIEST.
//
// The results of a panel stay in the first-level cache until they are searched.

#include <cmath>
#include <cstdint>
#include <vector>

#include "saxml_ext/engine/kernels/best.h"
#include "saxml_ext/engine/kernels/product.h"
#include "saxml_ext/engine/kernels/product_rows.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// The outputs of one row that have been searched.
class Row {
 public:
  Row(const LikeliestOutputs& to, int64_t row)
      : best_(to.count, to.values + row * to.count,
              to.outputs + row * to.count),
        peak_(to.peaks + row),
        total_(to.totals + row) {
    *peak_ = kBarred;
    for (int64_t i = row * to.count; i < (row + 1) * to.count; ++i) {
      to.values[i] = kBarred;
      to.outputs[i] = 0;
    }
  }

  // Searches `count` results from `output` on. The rest of a panel is changed.
  void Add(float* results, int64_t output, int64_t count) {
    for (int64_t i = count; i < kPanel; ++i) results[i] = kBarred;
    const float largest = PeakOf(results, kPanel);
    if (largest > *peak_) {
      sum_ *= std::exp(*peak_ - largest);
      *peak_ = largest;
    }
    if (*peak_ > kBarred) {
      Floats sums = {};
      for (int64_t i = 0; i < kPanel; i += kLanes) {
        sums += Exp(Load(results + i) - *peak_);
      }
      sum_ += SumOf(sums);
    }
    if (!best_.Wants(largest)) return;
    for (int64_t i = 0; i < count; ++i) {
      if (best_.Wants(results[i])) best_.Add(results[i], output + i);
    }
  }

  void Finish() { *total_ = sum_; }

 private:
  Best best_;
  float* peak_;
  float* total_;
  // A single float32 would collect the rounding errors of many panels.
  double sum_ = 0;
};

}  // namespace

void MULTIPLY_LIKELIEST(const Product& args, const LikeliestOutputs& likeliest,
                        int64_t begin, int64_t end) {
  static thread_local Kept<float> kept;
  float* const results = kept.OfSize(args.x.rows * kPanel);
  std::vector<Row> rows;
  for (int64_t row = 0; row < args.x.rows; ++row) {
    rows.emplace_back(likeliest, row);
  }
  int64_t last = end * kOutputs;
  if (last > args.outputs) last = args.outputs;
  for (int64_t output = begin * kOutputs; output < last; output += kPanel) {
    const int64_t count = last - output < kPanel ? last - output : kPanel;
    Product part = Part(args, output, count);
    part.result = results;
    part.stride = kPanel;
    MULTIPLY(part, 0, kPanel / kOutputs);
    for (int64_t row = 0; row < args.x.rows; ++row) {
      rows[row].Add(results + row * kPanel, output, count);
    }
  }
  for (Row& row : rows) row.Finish();
}

}  // namespace saxml_kernels

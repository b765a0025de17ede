// Compares each variant that this processor can run with sorting.

#include "saxml_ext/engine/kernels/likeliest.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "saxml_ext/engine/kernels/dispatch.h"

namespace saxml_kernels {
namespace {

int failures = 0;

void TestShape(int64_t slots, int64_t rows, int64_t vocabulary, int64_t count) {
  std::mt19937 rng(vocabulary);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits;
  for (int64_t i = 0; i < slots * rows * vocabulary; ++i) {
    // Ties, and tokens that are minus infinity.
    const float x = normal(rng);
    logits.push_back(i % 11 == 0  ? -std::numeric_limits<float>::infinity()
                     : i % 3 == 0 ? std::round(x)
                                  : x);
  }
  std::vector<int32_t> barred(slots * 2, -1);
  barred[0] = std::max_element(logits.begin(), logits.begin() + vocabulary) -
              logits.begin();

  const int64_t all = slots * rows;
  std::vector<float> peaks(all), log_totals(all), values(all * count);
  std::vector<int32_t> tokens(all * count);
  const Likeliest args = {rows,          vocabulary,        count,
                          logits.data(), barred.data(),     2,
                          peaks.data(),  log_totals.data(), values.data(),
                          tokens.data()};
  for (const Variant& variant : Variants()) {
    variant.find_likeliest(args, 0, all / 2);
    variant.find_likeliest(args, all / 2, all);
    bool good = true;
    for (int64_t row = 0; row < all; ++row) {
      std::vector<float> exact(logits.begin() + row * vocabulary,
                               logits.begin() + (row + 1) * vocabulary);
      const float peak = *std::max_element(exact.begin(), exact.end());
      double total = 0;
      for (float x : exact) total += std::exp(double{x} - peak);
      good &= peaks[row] == peak;
      good &= std::fabs(log_totals[row] - std::log(total)) < 1e-6;
      for (int64_t i = 0; i < 2; ++i) {
        const int32_t token = barred[row / rows * 2 + i];
        if (token >= 0) exact[token] = -std::numeric_limits<float>::infinity();
      }
      std::vector<int32_t> order(vocabulary);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return exact[a] > exact[b];
      });
      for (int64_t i = 0; i < count; ++i) {
        good &= tokens[row * count + i] == order[i];
        good &= values[row * count + i] == exact[order[i]];
      }
    }
    if (!good) ++failures;
    printf("%s %s: %ld of %ld tokens\n", good ? "ok" : "FAILED", variant.name,
           (long)count, (long)vocabulary);
  }
}

}  // namespace
}  // namespace saxml_kernels

int main() {
  saxml_kernels::TestShape(2, 1, 3, 3);
  saxml_kernels::TestShape(3, 4, 70, 8);
  saxml_kernels::TestShape(2, 2, 997, 40);
  saxml_kernels::TestShape(2, 4, 50401, 8);
  return saxml_kernels::failures == 0 ? 0 : 1;
}

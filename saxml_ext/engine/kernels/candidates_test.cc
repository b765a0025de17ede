// Compares each variant that this processor can run with sorting.

#include "saxml_ext/engine/kernels/candidates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "saxml_ext/engine/kernels/dispatch.h"

namespace saxml_kernels {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
int failures = 0;

// A candidate; the best sorts first.
using Item = std::tuple<float, int32_t, float, int32_t>;

void TestShape(int64_t slots, int64_t rows, int64_t vocabulary, int64_t count) {
  std::mt19937 rng(vocabulary);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits, scores;
  for (int64_t i = 0; i < slots * rows * vocabulary; ++i) {
    // Ties, and tokens that are minus infinity.
    const float x = normal(rng);
    logits.push_back(i % 11 == 0 ? kNever : i % 3 == 0 ? std::round(x) : x);
  }
  for (int64_t i = 0; i < slots * rows; ++i) {
    // Ties between rows, which are equal, and rows that are out of reach.
    if (i % rows == 1) {
      std::copy_n(&logits[(i - 1) * vocabulary], vocabulary,
                  &logits[i * vocabulary]);
    }
    scores.push_back(i % rows == 2 ? -1e9f : -0.5f * (i % rows / 2));
  }
  std::vector<int32_t> barred(slots * 2, -1), active(slots, rows);
  barred[0] = std::max_element(logits.begin(), logits.begin() + vocabulary) -
              logits.begin();
  barred[slots * 2 - 1] = vocabulary - 1;
  active[slots - 1] = (rows + 1) / 2;

  const int64_t all = slots * rows;
  std::vector<float> peaks(all), log_totals(all), sums(slots * count),
      log_probs(slots * count), maxima(all * MaximaOf(vocabulary));
  std::vector<int32_t> found_rows(slots * count), tokens(slots * count);
  const Candidates args = {
      slots,         rows,          vocabulary,        count,
      logits.data(), scores.data(), barred.data(),     2,
      active.data(), peaks.data(),  log_totals.data(), maxima.data(),
      sums.data(),   log_probs.data(), found_rows.data(), tokens.data()};
  for (const Variant& variant : Variants()) {
    variant.survey_rows(args, 0, all / 2);
    variant.survey_rows(args, all / 2, all);
    variant.choose(args, 0, 1);
    variant.choose(args, 1, slots);
    bool good = true;
    for (int64_t slot = 0; slot < slots; ++slot) {
      std::vector<Item> items;
      for (int64_t row = 0; row < active[slot]; ++row) {
        const int64_t at = slot * rows + row;
        const float* x = &logits[at * vocabulary];
        const float peak = *std::max_element(x, x + vocabulary);
        double total = 0;
        for (int64_t i = 0; i < vocabulary; ++i) {
          total += std::exp(double{x[i]} - peak);
        }
        good &= peaks[at] == peak;
        good &= std::fabs(log_totals[at] - std::log(total)) < 1e-6;
        for (int32_t i = 0; i < vocabulary; ++i) {
          const bool out = i == barred[slot * 2] || i == barred[slot * 2 + 1];
          const float logit = out ? kNever : x[i];
          const float log_prob = (logit - peak) - log_totals[at];
          items.emplace_back(-(log_prob + scores[at]), row, -logit, i);
        }
      }
      std::sort(items.begin(), items.end());
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = slot * count + i;
        const bool exists = i < static_cast<int64_t>(items.size());
        const auto [sum, row, logit, token] =
            exists ? items[i] : Item{-kNever, 0, 0, 0};
        good &= sums[at] == -sum;
        good &= found_rows[at] == row && tokens[at] == token;
        const int64_t in = slot * rows + row;
        good &= !exists || log_probs[at] == (-logit - peaks[in]) -
                                                log_totals[in];
      }
    }
    if (!good) ++failures;
    printf("%s %s: %ld of %ld rows, %ld tokens\n", good ? "ok" : "FAILED",
           variant.name, (long)count, (long)rows, (long)vocabulary);
  }
}

// If continuations are equal, the lowest row and the lowest tokens win, in any
// order of processing.
void TestEqual(int64_t vocabulary, int64_t count) {
  const int64_t rows = 2;
  const std::vector<float> logits(rows * vocabulary), scores(rows);
  const std::vector<int32_t> barred(2, -1), active(1, rows);
  std::vector<float> peaks(rows), log_totals(rows), sums(count),
      log_probs(count), maxima(rows * MaximaOf(vocabulary));
  std::vector<int32_t> found_rows(count), tokens(count);
  const Candidates args = {
      1,             rows,          vocabulary,        count,
      logits.data(), scores.data(), barred.data(),     2,
      active.data(), peaks.data(),  log_totals.data(), maxima.data(),
      sums.data(),   log_probs.data(), found_rows.data(), tokens.data()};
  for (const Variant& variant : Variants()) {
    variant.survey_rows(args, 0, rows);
    variant.choose(args, 0, 1);
    bool good = true;
    for (int64_t i = 0; i < count; ++i) {
      good &= found_rows[i] == 0 && tokens[i] == i;
    }
    if (!good) ++failures;
    printf("%s %s: %ld of %ld equal tokens\n", good ? "ok" : "FAILED",
           variant.name, (long)count, (long)vocabulary);
  }
}

}  // namespace
}  // namespace saxml_kernels

int main() {
  saxml_kernels::TestEqual(1000, 8);
  saxml_kernels::TestShape(2, 1, 3, 5);  // There are three continuations.
  saxml_kernels::TestShape(3, 4, 70, 8);
  saxml_kernels::TestShape(2, 30, 997, 60);
  saxml_kernels::TestShape(2, 4, 50401, 8);
  saxml_kernels::TestShape(2, 100, 1024, 200);
  return saxml_kernels::failures == 0 ? 0 : 1;
}

// Compares each variant that this processor can run with simple loops.

#include "saxml_ext/engine/kernels/product.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "saxml_ext/engine/kernels/dispatch.h"

namespace saxml_kernels {
namespace {

int failures = 0;

// Rows [M, K], weights [N, K], and their scales and results.
struct Case {
  int64_t rows, outputs, size, planes;
  std::vector<float> x, scales, bias;
  std::vector<int8_t> weights;
};

// With `extreme`, all numbers are as large as possible and all products
// positive.
Case Make(int64_t rows, int64_t outputs, int64_t size, int64_t planes,
          bool extreme) {
  std::mt19937 rng(rows * 1000 + size);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> code(-128, 127);
  Case made = {rows, outputs, size, planes, {}, {}, {}, {}};
  for (int64_t i = 0; i < rows * size; ++i) {
    // One row has no scale.
    const float x = extreme ? (i % size % 2 ? 1 : -1) : normal(rng);
    made.x.push_back(rows > 1 && i / size == rows / 2 ? 0 : x);
  }
  for (int64_t i = 0; i < outputs * size; ++i) {
    made.weights.push_back(extreme ? (i % size % 2 ? 127 : -128) : code(rng));
  }
  for (int64_t i = 0; i < outputs; ++i) {
    made.scales.push_back(std::exp(normal(rng)));
    made.bias.push_back(normal(rng) * 100);
  }
  return made;
}

// Returns results [M, N]. A second call computes `begin` to `end`, in kOutputs.
// With `gated`, the same weights are also the gate's.
std::vector<float> Compute(const Multiplier& use, const Case& of,
                           int64_t begin, int64_t end, bool gated = false) {
  const PackedSizes sizes = use.packed_sizes(of.rows, of.size, of.planes);
  std::vector<int8_t> codes(sizes.bytes + kLine);
  const int64_t misplaced =
      reinterpret_cast<uintptr_t>(codes.data()) % kLine;
  const int64_t rows = sizes.blocks * sizes.rows_per_block;
  std::vector<float> row_scales(rows);
  std::vector<int32_t> offsets(of.planes * rows);
  const PackedRows packed = {of.rows,
                             of.size,
                             of.planes,
                             codes.data() + (kLine - misplaced) % kLine,
                             row_scales.data(),
                             offsets.data()};
  use.pack_rows(of.x.data(), packed, 0, sizes.blocks / 2);
  use.pack_rows(of.x.data(), packed, sizes.blocks / 2, sizes.blocks);
  std::vector<float> result(of.rows * of.outputs, NAN);
  const Product args = {packed,          of.weights.data(),
                        of.scales.data(), of.bias.data(),
                        of.outputs,      result.data(),
                        of.outputs};
  const auto multiply = [&](int64_t first, int64_t last) {
    if (gated) return use.multiply_gated(args, args, first, last);
    use.multiply(args, first, last);
  };
  multiply(0, begin);
  multiply(end, (of.outputs + kOutputs - 1) / kOutputs);
  multiply(begin, end);
  return result;
}

// Checks that results are exact sums of integers, except for the last rounding.
bool IsGood(const Case& of, const std::vector<float>& got) {
  const double largest = of.planes == 1 ? 127 : 127 * 255 + 127;
  for (int64_t m = 0; m < of.rows; ++m) {
    float peak = 0;
    for (int64_t k = 0; k < of.size; ++k) {
      peak = std::fmax(peak, std::fabs(of.x[m * of.size + k]));
    }
    const float factor = peak > 0 ? static_cast<float>(largest) / peak : 0;
    for (int64_t n = 0; n < of.outputs; ++n) {
      int64_t sum = 0;
      for (int64_t k = 0; k < of.size; ++k) {
        // The kernel also rounds ties to even numbers.
        const float number = of.x[m * of.size + k] * factor;
        sum += static_cast<int64_t>(std::nearbyint(number)) *
               of.weights[n * of.size + k];
      }
      const double exact = sum * (peak / largest) * of.scales[n] + of.bias[n];
      const double terms =
          std::fabs(sum * (peak / largest) * of.scales[n]) +
          std::fabs(of.bias[n]);
      if (!(std::fabs(got[m * of.outputs + n] - exact) <= 4e-7 * terms)) {
        return false;
      }
    }
  }
  return true;
}

void Test(int64_t rows, int64_t outputs, int64_t size, bool extreme = false) {
  for (int64_t planes = 1; planes <= 2; ++planes) {
    const Case made = Make(rows, outputs, size, planes, extreme);
    for (const Multiplier& use : Multipliers()) {
      const int64_t parts = (outputs + kOutputs - 1) / kOutputs;
      const bool good =
          IsGood(made, Compute(use, made, parts / 3, (parts + 1) / 2));
      if (!good) ++failures;
      printf("%s %s: %ld x %ld x %ld, %ld planes%s\n", good ? "ok" : "FAILED",
             use.name, (long)rows, (long)outputs, (long)size, (long)planes,
             extreme ? ", the largest codes" : "");
    }
  }
}

// Compares gated products with the formula, applied to the plain products.
void TestGated(int64_t rows, int64_t outputs, int64_t size) {
  for (int64_t planes = 1; planes <= 2; ++planes) {
    const Case made = Make(rows, outputs, size, planes, false);
    for (const Multiplier& use : Multipliers()) {
      const int64_t parts = (outputs + kOutputs - 1) / kOutputs;
      const std::vector<float> plain = Compute(use, made, 0, parts);
      const std::vector<float> got =
          Compute(use, made, parts / 3, (parts + 1) / 2, true);
      bool good = true;
      for (size_t i = 0; i < plain.size(); ++i) {
        const double x = plain[i], exact = x * (x / (1 + std::exp(-x)));
        good &= std::fabs(got[i] - exact) <= 1e-6 * std::fabs(exact) + 1e-30;
      }
      if (!good) ++failures;
      printf("%s %s: gated %ld x %ld x %ld, %ld planes\n",
             good ? "ok" : "FAILED", use.name, (long)rows, (long)outputs,
             (long)size, (long)planes);
    }
  }
}

// Rows up to 1e-30 count as zero, as in `quant.py`, because a division by less
// overflows.
void TestNegligible() {
  for (const float peak : {5e-31f, 2e-30f}) {
    for (int64_t planes = 1; planes <= 2; ++planes) {
      Case made = Make(1, 16, 64, planes, true);
      for (float& x : made.x) x *= peak;
      for (float& bias : made.bias) bias = 0;
      for (const Multiplier& use : Multipliers()) {
        const std::vector<float> got = Compute(use, made, 0, 1);
        bool good = peak < 1e-30f || IsGood(made, got);
        for (const float y : got) good &= (y == 0) == (peak < 1e-30f);
        if (!good) ++failures;
        printf("%s %s: rows of %g, %ld planes\n", good ? "ok" : "FAILED",
               use.name, peak, (long)planes);
      }
    }
  }
}

}  // namespace
}  // namespace saxml_kernels

int main() {
  using saxml_kernels::Test;
  saxml_kernels::TestNegligible();
  // Maximum and smaller numbers of lanes per row, and padding after the last
  // row.
  for (int64_t rows = 1; rows <= 17; ++rows) Test(rows, 37, 72);
  // Odd numbers of blocks of rows, outputs and contracted numbers.
  Test(33, 17, 96);
  Test(64, 128, 64);
  Test(100, 129, 71);
  Test(150, 300, 100);
  Test(2, 5, 3);
  Test(1, 1, 1);
  Test(9, 16, 1030);
  Test(1, 20, 16384, true);
  Test(32, 20, 16384, true);
  for (const int64_t rows : {1, 3, 8, 33, 150}) {
    saxml_kernels::TestGated(rows, 300, 100);
  }
  saxml_kernels::TestGated(4, 5, 64);
  if (saxml_kernels::Multipliers().empty()) {
    printf("this processor leaves int8 products to XLA\n");
  }
  return saxml_kernels::failures == 0 ? 0 : 1;
}

// Compares each variant that this processor can run with simple loops.

#include "saxml_ext/engine/kernels/int4_product.h"

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

// Returns the bits of a float16 with this sign, exponent and fraction.
uint16_t Half(bool negative, int exponent, int fraction) {
  return (negative << 15) | ((exponent + 15) << 10) | fraction;
}

double ValueOf(uint16_t half) {
  const double size = std::ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25);
  return half >> 15 ? -size : size;
}

void Test(int64_t rows, int64_t outputs, int64_t groups, bool extreme) {
  std::mt19937 rng(rows * 1000 + groups);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> byte(0, 255);
  const int64_t tiles = (outputs + kInt4Outputs - 1) / kInt4Outputs;
  const int64_t size = groups * kInt4Group;
  std::vector<uint8_t> weights(tiles * groups * kInt4Bytes);
  std::vector<float> x, scales, bias;
  for (size_t at = 0; at < weights.size(); at += kInt4Bytes) {
    for (int64_t i = 0; i < kInt4Bytes; ++i) {
      weights[at + i] = extreme ? 255 : byte(rng);
    }
    for (int64_t i = 0; i < 2 * kInt4Outputs; ++i) {
      const bool negative = i >= kInt4Outputs && !extreme;
      const uint16_t half = Half(negative, -byte(rng) % 14, byte(rng) * 4);
      memcpy(&weights[at + 2 * i], &half, sizeof(half));
    }
  }
  for (int64_t i = 0; i < rows * size; ++i) {
    // One group has no scale.
    const bool zero = rows > 1 && i / kInt4Group == rows / 2;
    x.push_back(zero ? 0 : extreme ? 1 : normal(rng));
  }
  for (int64_t n = 0; n < outputs; ++n) {
    scales.push_back(std::exp(normal(rng)));
    bias.push_back(normal(rng));
  }
  for (const Multiplier& use : Multipliers()) {
    std::vector<int8_t> codes(rows * size);
    std::vector<float> row_scales(rows * groups), sums(rows * groups);
    const Int4Rows packed = {rows, groups, codes.data(), row_scales.data(),
                             sums.data()};
    use.pack_int4_rows(x.data(), packed, 0, rows / 2);
    use.pack_int4_rows(x.data(), packed, rows / 2, rows);
    std::vector<float> got(rows * outputs, NAN);
    const Int4Product args = {packed,      weights.data(), scales.data(),
                              bias.data(), outputs,        got.data()};
    use.multiply_int4(args, tiles / 2, tiles);
    use.multiply_int4(args, 0, tiles / 2);
    bool good = true;
    for (int64_t i = 0; i < rows * size; ++i) {
      const double step = row_scales[i / kInt4Group];
      good &= std::fabs(codes[i] * step - x[i]) <= 0.501 * step;
    }
    for (int64_t i = 0; i < rows * outputs; ++i) {
      const int64_t row = i / outputs, output = i % outputs;
      const int64_t in_tile = output % kInt4Outputs;
      double sum = bias[output], terms = std::fabs(sum);
      for (int64_t k = 0; k < size; ++k) {
        const uint8_t* const group =
            &weights[(output / kInt4Outputs * groups + k / kInt4Group) *
                     kInt4Bytes];
        uint16_t halves[2];
        memcpy(&halves[0], group + 2 * in_tile, 2);
        memcpy(&halves[1], group + 2 * (kInt4Outputs + in_tile), 2);
        const uint8_t both = group[kInt4Codes + k % kInt4Group / 8 * 64 +
                                   4 * in_tile + k % 4];
        const int code = k % 8 < 4 ? both & 15 : both >> 4;
        const double factor = codes[row * size + k] * scales[output] *
                              (double)row_scales[(row * size + k) / kInt4Group];
        sum += factor * (ValueOf(halves[0]) * code + ValueOf(halves[1]));
        terms += std::fabs(factor) * (std::fabs(ValueOf(halves[0]) * code) +
                                      std::fabs(ValueOf(halves[1])));
      }
      good &= std::fabs(got[i] - sum) <= 1e-6 * terms;
    }
    if (!good) ++failures;
    printf("%s %s: %ld x %ld x %ld%s\n", good ? "ok" : "FAILED", use.name,
           (long)rows, (long)outputs, (long)size,
           extreme ? ", the largest codes" : "");
  }
}

}  // namespace
}  // namespace saxml_kernels

int main() {
  using saxml_kernels::Test;
  for (int64_t rows = 1; rows <= 17; ++rows) Test(rows, 37, 3, false);
  Test(1, 1, 1, false);
  Test(70, 16, 5, false);
  Test(3, 130, 64, false);
  Test(13, 32, 64, true);
  if (saxml_kernels::Multipliers().empty()) {
    printf("this processor leaves int4 products to XLA\n");
  }
  return saxml_kernels::failures == 0 ? 0 : 1;
}

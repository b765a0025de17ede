// Compares each variant that this processor can run with simple loops.

#include "saxml_ext/engine/kernels/float_product.h"

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

std::vector<float> Draw(int64_t count, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> drawn;
  for (int64_t i = 0; i < count; ++i) drawn.push_back(normal(rng));
  return drawn;
}

// Checks that results are as close to the exact sums as float32 allows.
bool IsGood(const FloatProduct& args, const std::vector<float>& weights,
            const std::vector<float>& got) {
  for (int64_t m = 0; m < args.rows; ++m) {
    for (int64_t n = 0; n < args.outputs; ++n) {
      double sum = args.bias[n], size = std::fabs(sum);
      for (int64_t k = 0; k < args.size; ++k) {
        const int64_t at =
            args.outputs_first ? n * args.size + k : k * args.outputs + n;
        const double product =
            static_cast<double>(args.x[m * args.size + k]) * weights[at];
        sum += product;
        size += std::fabs(product);
      }
      if (!(std::fabs(got[m * args.outputs + n] - sum) <= 1e-6 * size)) {
        return false;
      }
    }
  }
  return true;
}

// Returns the upper halves of numbers, and removes the lower ones.
std::vector<uint16_t> Cut(std::vector<float>& numbers) {
  std::vector<uint16_t> halves;
  for (float& number : numbers) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    bits &= 0xFFFF0000;
    memcpy(&number, &bits, sizeof(bits));
    halves.push_back(bits >> 16);
  }
  return halves;
}

void Test(int64_t rows, int64_t outputs, int64_t size, bool outputs_first,
          bool bfloat16) {
  std::mt19937 rng(rows * 1000 + size);
  const std::vector<float> x = Draw(rows * size, rng);
  std::vector<float> weights = Draw(outputs * size, rng);
  std::vector<uint16_t> halves;
  if (bfloat16) halves = Cut(weights);
  const std::vector<float> bias = Draw(outputs, rng);
  for (const Variant& use : Variants()) {
    std::vector<float> result(rows * outputs, NAN);
    const void* const stored =
        bfloat16 ? static_cast<const void*>(halves.data()) : weights.data();
    const FloatProduct args = {rows,     size,          outputs,
                               x.data(), stored,        bfloat16,
                               outputs_first, bias.data(), result.data()};
    const int64_t parts = (outputs + kFloatOutputs - 1) / kFloatOutputs;
    use.multiply_floats(args, parts / 2, parts);
    use.multiply_floats(args, 0, parts / 2);
    const bool good = IsGood(args, weights, result);
    if (!good) ++failures;
    printf("%s %s: %ld x %ld x %ld%s%s\n", good ? "ok" : "FAILED", use.name,
           (long)rows, (long)outputs, (long)size,
           outputs_first ? ", outputs first" : "",
           bfloat16 ? ", bfloat16" : "");
  }
}

}  // namespace
}  // namespace saxml_kernels

int main() {
  for (const bool bfloat16 : {false, true}) {
    for (const bool outputs_first : {false, true}) {
      const auto test = [=](int64_t rows, int64_t outputs, int64_t size) {
        saxml_kernels::Test(rows, outputs, size, outputs_first, bfloat16);
      };
      // Rows that are multiplied together, and a remainder.
      for (int64_t rows = 1; rows <= 17; ++rows) test(rows, 40, 72);
      // Several parts, and odd numbers of outputs and contracted numbers.
      test(8, 1537, 64);
      test(3, 1023, 97);
      test(16, 513, 1030);
      test(1, 1, 1);
      test(5, 3, 2);
    }
  }
  return saxml_kernels::failures == 0 ? 0 : 1;
}

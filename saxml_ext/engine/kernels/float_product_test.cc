// Compares each variant that this processor can run with simple loops.

#include "saxml_ext/engine/kernels/float_product.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
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
bool IsGood(const FloatProduct& args, const std::vector<float>& got) {
  for (int64_t m = 0; m < args.rows; ++m) {
    for (int64_t n = 0; n < args.outputs; ++n) {
      double sum = args.bias[n], size = std::fabs(sum);
      for (int64_t k = 0; k < args.size; ++k) {
        const int64_t at =
            args.outputs_first ? n * args.size + k : k * args.outputs + n;
        const double product =
            static_cast<double>(args.x[m * args.size + k]) * args.weights[at];
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

void Test(int64_t rows, int64_t outputs, int64_t size, bool outputs_first) {
  std::mt19937 rng(rows * 1000 + size);
  const std::vector<float> x = Draw(rows * size, rng);
  const std::vector<float> weights = Draw(outputs * size, rng);
  const std::vector<float> bias = Draw(outputs, rng);
  for (const Variant& use : Variants()) {
    std::vector<float> result(rows * outputs, NAN);
    const FloatProduct args = {rows,           size,          outputs,
                               x.data(),       weights.data(), outputs_first,
                               bias.data(),    result.data()};
    const int64_t parts = (outputs + kFloatOutputs - 1) / kFloatOutputs;
    use.multiply_floats(args, parts / 2, parts);
    use.multiply_floats(args, 0, parts / 2);
    const bool good = IsGood(args, result);
    if (!good) ++failures;
    printf("%s %s: %ld x %ld x %ld%s\n", good ? "ok" : "FAILED", use.name,
           (long)rows, (long)outputs, (long)size,
           outputs_first ? ", outputs first" : "");
  }
}

}  // namespace
}  // namespace saxml_kernels

int main() {
  for (const bool outputs_first : {false, true}) {
    // Rows that are multiplied together, and a remainder.
    for (int64_t rows = 1; rows <= 17; ++rows) {
      saxml_kernels::Test(rows, 40, 72, outputs_first);
    }
    // Several parts, and odd numbers of outputs and contracted numbers.
    saxml_kernels::Test(8, 1537, 64, outputs_first);
    saxml_kernels::Test(3, 1023, 97, outputs_first);
    saxml_kernels::Test(16, 513, 1030, outputs_first);
    saxml_kernels::Test(1, 1, 1, outputs_first);
    saxml_kernels::Test(5, 3, 2, outputs_first);
  }
  return saxml_kernels::failures == 0 ? 0 : 1;
}

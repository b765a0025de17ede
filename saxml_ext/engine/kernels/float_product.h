// Products of a few rows of activations with float32 weights.

#ifndef SAXML_EXT_ENGINE_KERNELS_FLOAT_PRODUCT_H_
#define SAXML_EXT_ENGINE_KERNELS_FLOAT_PRODUCT_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: M rows of activations, N outputs, K numbers that are contracted.

// Outputs are given to threads in multiples of so many: of weights [K, N] a page
// of memory is read before the next one.
constexpr int64_t kFloatOutputs = 1024;

struct FloatProduct {
  int64_t rows, size, outputs;  // M, K, N.
  const float* x;               // [M, K].
  const float* weights;         // [K, N]; if outputs_first, [N, K].
  bool outputs_first;
  const float* bias;  // [N].
  float* result;      // [M, N].
};

// Computes the outputs `begin` * kFloatOutputs to `end` * kFloatOutputs of N.
// Weights are read once, and with few rows as fast as memory gives them.
using MultiplyFloatsFunction = void(const FloatProduct& args, int64_t begin,
                                    int64_t end);

// The same for different processors.
MultiplyFloatsFunction MultiplyFloatsPortable;
#if defined(__x86_64__)
MultiplyFloatsFunction MultiplyFloatsAvx2;
MultiplyFloatsFunction MultiplyFloatsAvx512;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_FLOAT_PRODUCT_H_

// Products of a few rows of activations with weights in float.

#ifndef SAXML_EXT_ENGINE_KERNELS_FLOAT_PRODUCT_H_
#define SAXML_EXT_ENGINE_KERNELS_FLOAT_PRODUCT_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: M rows of activations, N outputs, K numbers that are contracted.

// Threads get outputs in multiples of this number. For weights [K, N], a page
// of memory is then read before the next one.
constexpr int64_t kFloatOutputs = 1024;

struct FloatProduct {
  int64_t rows, size, outputs;  // M, K, N.
  const float* x;               // [M, K].
  const void* weights;          // [K, N]; if outputs_first, [N, K].
  bool bfloat16;                // The weights are bfloat16, else float32.
  bool outputs_first;
  const float* bias;  // [N].
  float* result;      // [M, N].
};

// Computes the outputs `begin` * kFloatOutputs to `end` * kFloatOutputs of N.
// Weights are read once. With few rows, the speed is the memory bandwidth.
using MultiplyFloatsFunction = void(const FloatProduct& args, int64_t begin,
                                    int64_t end);

// Variants for different processors.
MultiplyFloatsFunction MultiplyFloatsPortable;
#if defined(__x86_64__)
MultiplyFloatsFunction MultiplyFloatsAvx2;
MultiplyFloatsFunction MultiplyFloatsAvx512;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_FLOAT_PRODUCT_H_

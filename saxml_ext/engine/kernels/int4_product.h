// Products of activations with int4 weights.

#ifndef SAXML_EXT_ENGINE_KERNELS_INT4_PRODUCT_H_
#define SAXML_EXT_ENGINE_KERNELS_INT4_PRODUCT_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: M rows of activations, N of weights, K numbers in each, T tiles of
// outputs, and G groups of K.

// Numbers of a row that share a scale, and outputs of a tile.
constexpr int64_t kInt4Group = 32;
constexpr int64_t kInt4Outputs = 16;
// A group of a tile has 16 scales, 16 minima and 512 codes.
constexpr int64_t kInt4Codes = 4 * kInt4Outputs;
constexpr int64_t kInt4Bytes = kInt4Codes + kInt4Group * kInt4Outputs / 2;

// Activations in int8, with a scale for each group.
struct Int4Rows {
  int64_t rows, groups;  // M, G.
  int8_t* codes;         // [M, K].
  float* scales;         // [M, G].
  float* sums;           // [M, G]: the sum of the quantized activations.
};

// Quantizes the rows `begin` to `end` of x [M, K].
using PackInt4RowsFunction = void(const float* x, const Int4Rows& packed,
                                  int64_t begin, int64_t end);

struct Int4Product {
  Int4Rows x;
  // [T, G, kInt4Bytes], as `int4.py` describes. A weight is scale * (group's
  // scale * code + group's minimum).
  const uint8_t* weights;
  const float* scales;  // [N].
  const float* bias;    // [N].
  int64_t outputs;      // N.
  float* result;        // [M, N].
};

// Computes the tiles `begin` to `end` of outputs.
using MultiplyInt4Function = void(const Int4Product& args, int64_t begin,
                                  int64_t end);

#if defined(__x86_64__)
// Variants for different processors.
PackInt4RowsFunction PackInt4RowsAvx2, PackInt4RowsVnni;
MultiplyInt4Function MultiplyInt4Avx2, MultiplyInt4Vnni;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_INT4_PRODUCT_H_

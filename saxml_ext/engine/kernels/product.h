// Products of activations with int8 weights.

#ifndef SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_
#define SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: M rows of activations, N of weights, K numbers in each.

// Outputs are given to threads in multiples of so many.
constexpr int64_t kOutputs = 16;

// Outputs that are computed before they are written, row by row: were the rows
// written 16 outputs at a time, and N a power of two, all would compete for the
// same few lines of the cache (400 instead of 550 Gop/s).
constexpr int64_t kPanel = 128;

// Codes begin at a multiple of so many bytes.
constexpr int64_t kLine = 64;

// Activations as integers, in the order in which they are multiplied: blocks of
// rows, each as one plane of int8 or as two. See product.cc.
struct PackedRows {
  int64_t rows, size;  // M, K.
  // 1: codes from -127 to 127. 2: from -32,512 to 32,512, each the sum of 255
  // times a code of the first plane and one of the second.
  int64_t planes;
  int8_t* codes;
  float* scales;     // [blocks * rows of a block].
  int32_t* offsets;  // [planes] times as many: see product.cc.
};

struct Product {
  PackedRows x;
  const int8_t* weights;  // [N, K].
  const float* scales;    // [N].
  const float* bias;      // [N].
  int64_t outputs;        // N.
  float* result;          // [M, N].
};

// Sizes of what PackRows writes.
struct PackedSizes {
  int64_t blocks;
  int64_t rows_per_block;
  int64_t bytes;  // Of codes.
};
using PackedSizesFunction = PackedSizes(int64_t rows, int64_t size,
                                        int64_t planes);

// Makes integers of the blocks `begin` to `end` of the rows of x [M, K]: each
// row by the scale that makes the largest code of its largest value, as
// `quant.py` does.
using PackRowsFunction = void(const float* x, const PackedRows& packed,
                              int64_t begin, int64_t end);

// Computes the outputs `begin` * kOutputs to `end` * kOutputs of N. Sums of
// products are exact as long as they are within int32.
using MultiplyFunction = void(const Product& args, int64_t begin, int64_t end);

#if defined(__x86_64__)
// The same for different processors; what is packed for one is not for others.
PackedSizesFunction PackedSizesAvx2, PackedSizesVnni;
PackRowsFunction PackRowsAvx2, PackRowsVnni;
MultiplyFunction MultiplyAvx2, MultiplyVnni;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_

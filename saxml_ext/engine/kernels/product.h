// Products of activations with int8 weights.

#ifndef SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_
#define SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: M rows of activations, N of weights, K numbers in each.

// Rows that a vector of sums has.
constexpr int kRows = 16;

// Vectors of outputs that are computed before they are written, row by row:
// were the rows written 16 outputs at a time, and N a power of two, all would
// compete for the same few lines of the cache (400 instead of 550 Gop/s).
constexpr int kPanel = 8;

// So many rows are multiplied one by one.
constexpr int64_t kFewRows = 8;

// Activations in int8, in the order in which they are multiplied.
struct PackedRows {
  int64_t rows, size;  // M, K; K is a multiple of 4.
  // Of few rows [M, K], else [ceil(M / kRows), K / 4, kRows, 4], where rows
  // behind the last have 0.
  int8_t* codes;
  float* scales;     // [ceil(M / kRows) * kRows].
  int32_t* offsets;  // As many: 128 times the sum of a row's codes.
};

struct Product {
  PackedRows x;
  const int8_t* weights;  // [N, K].
  const float* scales;    // [N].
  const float* bias;      // [N].
  int64_t outputs;        // N.
  float* result;          // [M, N].
};

// For processors with AVX512-VNNI.

// Makes int8 of the rows `begin` * kRows to `end` * kRows of x [M, K]: each by
// the scale that makes 127 of its largest value, as `quant.py` does.
void PackRows(const float* x, const PackedRows& packed, int64_t begin,
              int64_t end);

// Computes the outputs `begin` * kRows to `end` * kRows of N.
void Multiply(const Product& args, int64_t begin, int64_t end);

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_

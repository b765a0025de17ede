// Products of activations with int8 weights.

#ifndef SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_
#define SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: M rows of activations, N of weights, K numbers in each.

// Threads get outputs in multiples of this number.
constexpr int64_t kOutputs = 16;

// The number of outputs that are computed before they are written, row by row.
// If 16 outputs of each row were written at a time, and N were a power of two,
// all rows would compete for the same cache lines (400 instead of 550 Gop/s).
constexpr int64_t kPanel = 128;

// The alignment of codes in bytes.
constexpr int64_t kLine = 64;

// Activations as integers, in the order in which they are multiplied: blocks of
// rows, each with one or two planes of int8. See product.cc.
struct PackedRows {
  int64_t rows, size;  // M, K.
  // With 1 plane, codes are from -127 to 127. With 2 planes, they are from
  // -32,512 to 32,512. Each is 255 times a code of the first plane plus one of
  // the second.
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
  float* result;          // [M, stride], of which N are written.
  int64_t stride;
};

// The sizes of the output of PackRows.
struct PackedSizes {
  int64_t blocks;
  int64_t rows_per_block;
  int64_t bytes;  // The size of the codes.
};
using PackedSizesFunction = PackedSizes(int64_t rows, int64_t size,
                                        int64_t planes);

// Quantizes the blocks `begin` to `end` of the rows of x [M, K]. The scale of
// each row maps its largest value to the largest code, as in `quant.py`.
using PackRowsFunction = void(const float* x, const PackedRows& packed,
                              int64_t begin, int64_t end);

// Computes the outputs `begin` * kOutputs to `end` * kOutputs of N. Sums of
// products are exact if they fit in int32.
using MultiplyFunction = void(const Product& args, int64_t begin, int64_t end);

// Computes the same outputs of silu(gate) * up. Both products have the same
// activations and sizes. The result is written to up's, and the result of
// `gate` is not used.
using MultiplyGatedFunction = void(const Product& gate, const Product& up,
                                   int64_t begin, int64_t end);

// The likeliest of some outputs of each row.
struct LikeliestOutputs {
  int64_t count;     // C, the number to find.
  float* peaks;      // [M]: the largest result.
  float* totals;     // [M]: the sum of exp(result - peak).
  float* values;     // [M, C]: results, the largest first. If there are fewer
                     // outputs, the last are minus infinity.
  int32_t* outputs;  // [M, C]: theirs; of equals the lowest first.
};

// Finds the likeliest of the outputs `begin` * kOutputs to `end` * kOutputs.
// The product's own result is not used.
using MultiplyLikeliestFunction = void(const Product& args,
                                       const LikeliestOutputs& likeliest,
                                       int64_t begin, int64_t end);

#if defined(__x86_64__)
// Variants for different processors. Their packed formats are not compatible.
PackedSizesFunction PackedSizesAvx2, PackedSizesVnni;
PackRowsFunction PackRowsAvx2, PackRowsVnni;
MultiplyFunction MultiplyAvx2, MultiplyVnni;
MultiplyGatedFunction MultiplyGatedAvx2, MultiplyGatedVnni;
MultiplyLikeliestFunction MultiplyLikeliestAvx2, MultiplyLikeliestVnni;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_PRODUCT_H_

// Quantizes activations, in the order in which product.cc multiplies them. For
// translation units that are compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_PRODUCT_ROWS_H_
#define SAXML_EXT_ENGINE_KERNELS_PRODUCT_ROWS_H_

#include <cstdint>
#include <cstring>

#include "saxml_ext/engine/kernels/dot.h"
#include "saxml_ext/engine/kernels/product.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// Letters: G lanes of a row.

// The same limit as in `quant.py`.
constexpr float kNegligible = 1e-30f;
// The weight of a code in the first of two planes. Because it is odd, both
// planes have codes from -127 to 127.
constexpr int kBase = 255;
// The largest code for one plane and for two.
constexpr int kLargest[] = {0, 127, 127 * kBase + 127};
// Bytes in a vector.
constexpr int64_t kBytes = 4 * kLanes;
// The number of planes of blocks in a group. Codes and sums of more planes
// would not fit in registers.
constexpr int64_t kGroup = kSums / 4;

// Lanes of a row. A few rows form one block, because a core then waits for
// memory only. More rows form a group of blocks, so that each vector of weights
// is used several times. For 8 rows, 2 blocks of 4 and 1 block of 8 are slower.
KERNEL int64_t LanesOf(int64_t rows) {
  const int64_t blocks = rows <= kLanes / 4 ? 1 : kGroup;
  int64_t lanes = kLanes;
  while (lanes > 1 && blocks * kLanes / lanes < rows) lanes /= 2;
  return lanes;
}

KERNEL int64_t Steps(int64_t size, int64_t lanes) {
  return (size + 4 * lanes - 1) / (4 * lanes);
}

KERNEL float Peak(const float* x, int64_t size) {
  Floats peaks = {};
  int64_t k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    const Floats some = Load(x + k);
    peaks = Max(peaks, Max(some, -some));
  }
  float peak = MaxOf(peaks);
  for (; k < size; ++k) peak = x[k] > peak ? x[k] : -x[k] > peak ? -x[k] : peak;
  return peak;
}

// Rounds to integers below 2^22 by adding 1.5 * 2^23; ties go to even.
KERNEL Ints Round(Floats x) {
  // XLA rounds the product before the addition, so no fused operation is used.
  asm("" : "+x"(x));
  return (Ints)(x + 12582912.0f) - 0x4B400000;
}

KERNEL void Narrow(int8_t* to, Ints codes) {
  const Bytes bytes = __builtin_convertvector(codes, Bytes);
  memcpy(to, &bytes, sizeof(bytes));
}

// Computes the codes of a row and their sums. The first plane goes to codes[0]
// and the second to codes[1].
template <int planes>
KERNEL void Quantize(const float* x, int64_t size, float factor,
                     int8_t* const* codes, int32_t* sums) {
  Ints totals[planes] = {};
  for (int64_t k = 0; k < size; k += kLanes) {
    Floats some = {};
    if (k + kLanes <= size) {
      some = Load(x + k);
    } else {
      memcpy(&some, x + k, (size - k) * sizeof(float));
    }
    const Ints all = Round(some * factor);
    if constexpr (planes == 1) {
      totals[0] += all;
      Narrow(codes[0] + k, all);
    } else {
      const Ints high = Round(__builtin_convertvector(all, Floats) / kBase);
      const Ints low = all - high * kBase;
      totals[0] += high;
      totals[1] += low;
      Narrow(codes[0] + k, high);
      Narrow(codes[1] + k, low);
    }
  }
  for (int p = 0; p < planes; ++p) {
    sums[p] = 0;
    for (int i = 0; i < kLanes; ++i) sums[p] += totals[p][i];
  }
}

// Copies a row's codes, in pieces of G lanes that are `stride` bytes apart.
template <int G>
KERNEL void Scatter(const int8_t* codes, int64_t steps, int64_t stride,
                    int8_t* to) {
  for (int64_t step = 0; step < steps; ++step) {
    memcpy(to + step * stride, codes + step * 4 * G, 4 * G);
  }
}

KERNEL void Scatter(const int8_t* codes, int64_t steps, int64_t stride,
                    int64_t lanes, int8_t* to) {
  if (lanes == 1) return Scatter<1>(codes, steps, stride, to);
  if (lanes == 2) return Scatter<2>(codes, steps, stride, to);
  if (lanes == 4) return Scatter<4>(codes, steps, stride, to);
  if (lanes == 8) return Scatter<8>(codes, steps, stride, to);
  if constexpr (kLanes > 8) Scatter<kLanes>(codes, steps, stride, to);
}

// A buffer that grows and is kept. Newly allocated memory costs as much as a
// small product.
template <typename T>
class Kept {
 public:
  ~Kept() { delete[] items_; }
  T* OfSize(int64_t size) {
    if (size > size_) {
      delete[] items_;
      items_ = new T[size];
      size_ = size;
    }
    return items_;
  }

 private:
  T* items_ = nullptr;
  int64_t size_ = 0;
};

template <int planes>
void PackBlock(const float* x, const PackedRows& packed, int64_t block) {
  const int64_t size = packed.size, lanes = LanesOf(packed.rows);
  const int64_t height = kLanes / lanes, steps = Steps(size, lanes);
  const int64_t width = (steps * 4 * lanes + kBytes) / kBytes * kBytes;
  const int64_t all = (packed.rows + height - 1) / height * planes;
  static thread_local Kept<int8_t> kept;
  int8_t* const row_codes = kept.OfSize(planes * width);
  int8_t* const codes[] = {row_codes, row_codes + (planes - 1) * width};
  for (int64_t i = 0; i < height; ++i) {
    const int64_t row = block * height + i;
    int32_t sums[planes] = {};
    float peak = 0;
    // The elements after the row's end, and after the last row, are 0.
    memset(row_codes, 0, planes * width);
    if (row < packed.rows) {
      peak = Peak(x + row * size, size);
      const float factor = peak > kNegligible ? kLargest[planes] / peak : 0;
      Quantize<planes>(x + row * size, size, factor, codes, sums);
    }
    packed.scales[row] = peak * (1.0f / kLargest[planes]);
    for (int p = 0; p < planes; ++p) {
      const int64_t at = block * planes + p, first = at / kGroup * kGroup;
      const int64_t together = all - first < kGroup ? all - first : kGroup;
      packed.offsets[at * height + i] = kOffset * sums[p];
      Scatter(codes[p], steps, together * kBytes, lanes,
              packed.codes + (first * steps + at - first) * kBytes +
                  i * 4 * lanes);
    }
  }
}

// Returns the part of a product with `count` outputs from `output` on.
KERNEL Product Part(Product args, int64_t output, int64_t count) {
  args.weights += output * args.x.size;
  args.scales += output;
  args.bias += output;
  args.result += output;
  args.outputs = count;
  return args;
}

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_PRODUCT_ROWS_H_

// Compiled once for each kind of processor. Compiler options set the names of
// the functions: PACK_INT4_ROWS, MULTIPLY_INT4.
//
// A lane of a vector sums the products of one output. A vector of weights has
// four numbers of each output, and is multiplied with the same four numbers of a
// row of activations in all lanes. So each group's sum is in its lane without
// further additions, and is multiplied with its scale there.

#include "saxml_ext/engine/kernels/int4_product.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "saxml_ext/engine/kernels/simd.h"

#define UNROLL _Pragma("GCC unroll 32")

namespace saxml_kernels {
namespace {

// Letters: R rows of activations, V vectors of outputs.

constexpr float kLargest = 127;
constexpr float kNegligible = 1e-30f;
constexpr int kVectors = kInt4Outputs / kLanes;
constexpr int kBytes = 4 * kLanes;
// The distance of the prefetch of weights.
constexpr int64_t kAhead = 4096;
// The rows that are multiplied with one tile after the other, so that they stay
// in a cache.
constexpr int64_t kRows = 64;

#if defined(__AVX512VNNI__)

constexpr int kMostRows = 8;
constexpr int kTogether = 1;

using Codes = __m512i;
using Sums = __m512i;

KERNEL Codes Load(const uint8_t* from) { return _mm512_loadu_si512(from); }

KERNEL Codes Low(Codes x) {
  return _mm512_and_si512(x, _mm512_set1_epi8(15));
}

KERNEL Codes High(Codes x) { return Low(_mm512_srli_epi16(x, 4)); }

KERNEL void AddProducts(Sums& sums, Codes weights, const int8_t* row) {
  int32_t some;
  memcpy(&some, row, sizeof(some));
  asm("vpdpbusd %2, %1, %0"
      : "+v"(sums)
      : "v"(weights), "v"(_mm512_set1_epi32(some)));
}

KERNEL Floats Total(Sums sums) { return (Floats)_mm512_cvtepi32_ps(sums); }

KERNEL Floats LoadHalves(const uint8_t* from) {
  return (Floats)_mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

#else  // AVX2.

constexpr int kMostRows = 4;
// Vectors of outputs whose sums fit in registers beside those of other rows.
constexpr int kTogether = 2;

using Codes = __m256i;
// Sums of a group are less than 2^15: 16 * 15 * 127.
using Sums = __m256i;

KERNEL Codes Load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

KERNEL Codes Low(Codes x) {
  return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

KERNEL Codes High(Codes x) { return Low(_mm256_srli_epi16(x, 4)); }

KERNEL void AddProducts(Sums& sums, Codes weights, const int8_t* row) {
  int32_t some;
  memcpy(&some, row, sizeof(some));
  sums = _mm256_add_epi16(
      sums, _mm256_maddubs_epi16(weights, _mm256_set1_epi32(some)));
  // Otherwise GCC would add in another order, and keep many terms in memory.
  asm("" : "+x"(sums));
}

KERNEL Floats Total(Sums sums) {
  return (Floats)_mm256_cvtepi32_ps(
      _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
}

KERNEL Floats LoadHalves(const uint8_t* from) {
  return (Floats)_mm256_cvtph_ps(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

#endif

// Computes R rows from `row` on times V vectors of the tile's outputs, from
// vector `first` on.
template <int R, int V>
KERNEL void Multiply(const Int4Product& args, int64_t row, int64_t tile,
                     int first) {
  const int64_t groups = args.x.groups;
  const int8_t* codes[R];
  const float* scales = args.x.scales + row * groups;
  const float* sums = args.x.sums + row * groups;
  const uint8_t* weights = args.weights + tile * groups * kInt4Bytes;
  Floats totals[R][V];
  UNROLL for (int r = 0; r < R; ++r) {
    codes[r] = args.x.codes + (row + r) * groups * kInt4Group;
    UNROLL for (int v = 0; v < V; ++v) totals[r][v] = Floats{};
  }
  for (int64_t group = 0; group < groups; ++group) {
    if constexpr (R == 1) {
      UNROLL for (int64_t line = 0; line < kInt4Bytes; line += 64) {
        __builtin_prefetch(weights + kAhead + line);
      }
    }
    Sums products[R][V] = {};
    UNROLL for (int step = 0; step < 4; ++step) {
      UNROLL for (int v = 0; v < V; ++v) {
        const Codes both = Load(weights + kInt4Codes +
                                (step * kVectors + first + v) * kBytes);
        const Codes low = Low(both), high = High(both);
        UNROLL for (int r = 0; r < R; ++r) {
          AddProducts(products[r][v], low, codes[r] + 8 * step);
          AddProducts(products[r][v], high, codes[r] + 8 * step + 4);
        }
      }
    }
    UNROLL for (int v = 0; v < V; ++v) {
      const uint8_t* const from = weights + 2 * kLanes * (first + v);
      const Floats scale = LoadHalves(from);
      const Floats minimum = LoadHalves(from + 2 * kInt4Outputs);
      UNROLL for (int r = 0; r < R; ++r) {
        const int64_t at = r * groups + group;
        totals[r][v] += Total(products[r][v]) * scales[at] * scale;
        totals[r][v] += minimum * sums[at];
      }
    }
    UNROLL for (int r = 0; r < R; ++r) codes[r] += kInt4Group;
    weights += kInt4Bytes;
  }
  UNROLL for (int v = 0; v < V; ++v) {
    const int64_t output = tile * kInt4Outputs + (first + v) * kLanes;
    const int64_t left = args.outputs - output;
    if (left <= 0) return;
    const int64_t bytes = left < kLanes ? left * 4 : kBytes;
    Floats scale = {}, bias = {};
    memcpy(&scale, args.scales + output, bytes);
    memcpy(&bias, args.bias + output, bytes);
    UNROLL for (int r = 0; r < R; ++r) {
      const Floats result = totals[r][v] * scale + bias;
      memcpy(args.result + (row + r) * args.outputs + output, &result, bytes);
    }
  }
}

// Computes R rows times all outputs of a tile.
template <int R>
KERNEL void AllOutputs(const Int4Product& args, int64_t row, int64_t tile) {
  constexpr int V = kTogether;
  UNROLL for (int first = 0; first < kVectors; first += V) {
    Multiply<R, V>(args, row, tile, first);
  }
}

}  // namespace

void PACK_INT4_ROWS(const float* x, const Int4Rows& packed, int64_t begin,
                    int64_t end) {
  for (int64_t at = begin * packed.groups; at < end * packed.groups; ++at) {
    const float* const group = x + at * kInt4Group;
    Floats peaks = {};
    for (int64_t k = 0; k < kInt4Group; k += kLanes) {
      const Floats some = ::Load(group + k);
      peaks = Max(peaks, Max(some, -some));
    }
    const float peak = MaxOf(peaks);
    const float factor = peak > kNegligible ? kLargest / peak : 0;
    Ints sum = {};
    for (int64_t k = 0; k < kInt4Group; k += kLanes) {
      // Adding 1.5 * 2^23 rounds to an integer.
      const Floats shifted = ::Load(group + k) * factor + 12582912.0f;
      const Ints codes = (Ints)shifted - 0x4B400000;
      sum += codes;
      const Bytes bytes = __builtin_convertvector(codes, Bytes);
      memcpy(packed.codes + at * kInt4Group + k, &bytes, sizeof(bytes));
    }
    const float scale = peak * (1 / kLargest);
    packed.scales[at] = scale;
    packed.sums[at] = scale * SumOf(__builtin_convertvector(sum, Floats));
  }
}

void MULTIPLY_INT4(const Int4Product& args, int64_t begin, int64_t end) {
  for (int64_t first = 0; first < args.x.rows; first += kRows) {
    int64_t last = first + kRows;
    if (last > args.x.rows) last = args.x.rows;
    for (int64_t tile = begin; tile < end; ++tile) {
      int64_t row = first;
      for (; row + kMostRows <= last; row += kMostRows) {
        AllOutputs<kMostRows>(args, row, tile);
      }
      if constexpr (kMostRows > 4) {
        if (last - row >= 4) {
          AllOutputs<4>(args, row, tile);
          row += 4;
        }
      }
      if (last - row >= 2) {
        AllOutputs<2>(args, row, tile);
        row += 2;
      }
      if (last > row) AllOutputs<1>(args, row, tile);
    }
  }
}

}  // namespace saxml_kernels

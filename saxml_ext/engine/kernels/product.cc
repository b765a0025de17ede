// Compiled for AVX512-VNNI, whose instruction adds to each of 16 sums the
// products of four unsigned and four signed bytes. Weights are made unsigned by
// adding 128; 128 times the sum of the activations is taken off in the end.
//
// The 16 sums are of 16 rows of activations: four bytes of a row of weights
// meet them all. So weights are read as they are stored, and but once. Of few
// rows most of the 16 would be for nothing; there they are parts of one sum.

#include "saxml_ext/engine/kernels/product.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

// Before each loop over an array of sums: once unrolled they are in registers.
#define UNROLL _Pragma("GCC unroll 32")

namespace saxml_kernels {
namespace {

// As in `quant.py`.
constexpr float kLargest = 127.0f;
constexpr float kNegligible = 1e-30f;
// How long before their use the weights are fetched.
constexpr int64_t kBytesAhead = 8192;

// Adds to each of 16 sums the products of its four codes and four weights +
// 128. As an intrinsic GCC 12 copies the sums before and after.
static inline void AddProducts(__m512i& sums, __m512i weights, __m512i codes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(codes));
}

// Signed bytes + 128.
static inline __m512i Unsigned(__m512i weights) {
  return _mm512_xor_si512(weights, _mm512_set1_epi8(-128));
}

static inline float Peak(const float* x, int64_t size) {
  __m512 peaks = _mm512_setzero_ps();
  int64_t k = 0;
  for (; k + 16 <= size; k += 16) {
    peaks = _mm512_max_ps(peaks, _mm512_abs_ps(_mm512_loadu_ps(x + k)));
  }
  const __mmask16 rest = (1u << (size - k)) - 1;
  peaks =
      _mm512_max_ps(peaks, _mm512_abs_ps(_mm512_maskz_loadu_ps(rest, x + k)));
  return _mm512_reduce_max_ps(peaks);
}

// Makes codes of some numbers and returns their sum. `factor`: what makes 127
// of the largest number.
static inline int32_t Quantize(const float* x, int64_t size, float factor,
                               int8_t* codes) {
  const __m512 factors = _mm512_set1_ps(factor);
  __m512i sums = _mm512_setzero_si512();
  const auto quantize = [&](__m512 numbers) {
    const __m512i some = _mm512_cvtps_epi32(_mm512_mul_ps(numbers, factors));
    sums = _mm512_add_epi32(sums, some);
    return _mm512_cvtepi32_epi8(some);
  };
  int64_t k = 0;
  for (; k + 16 <= size; k += 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + k),
                     quantize(_mm512_loadu_ps(x + k)));
  }
  const __mmask16 rest = (1u << (size - k)) - 1;
  _mm_mask_storeu_epi8(codes + k, rest,
                       quantize(_mm512_maskz_loadu_ps(rest, x + k)));
  return _mm512_reduce_add_epi32(sums);
}

// Writes the first `columns` columns of a square of 16 x 16 times 32 bits.
static inline void Transpose(const int8_t (&square)[kRows][64], int64_t columns,
                             int8_t* to) {
  __m512i x[16], y[16];
  UNROLL for (int i = 0; i < 16; ++i) x[i] = _mm512_load_si512(square[i]);
  // Turns squares of 4 x 4 in two steps, and then the square of those.
  UNROLL for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  UNROLL for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  UNROLL for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xEE);
    const __m512i c = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xEE);
    y[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    y[i + 4] = _mm512_shuffle_i32x4(a, c, 0xDD);
    y[i + 8] = _mm512_shuffle_i32x4(b, d, 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(b, d, 0xDD);
  }
  UNROLL for (int i = 0; i < 16; ++i) {
    if (i < columns) _mm512_storeu_si512(to + i * 64, y[i]);
  }
}

// Sums of four vectors.
static inline __m128i SumsOf(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b),
                                      _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d),
                                      _mm512_unpackhi_epi32(c, d));
  const __m512i abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd),
                                        _mm512_unpackhi_epi64(ab, cd));
  const __m256i halves = _mm256_add_epi32(_mm512_castsi512_si256(abcd),
                                          _mm512_extracti64x4_epi64(abcd, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(halves),
                       _mm256_extracti128_si256(halves, 1));
}

// Results of R rows from `row` on for the outputs from `output` on, of which
// `count` exist; `weights` are their rows.
template <int R>
static inline void FewRows(const Product& args, int64_t row, int64_t output,
                           int64_t count, const int8_t* const* weights) {
  const PackedRows& x = args.x;
  const int8_t* codes = x.codes + row * x.size;
  __m512i sums[R][4];
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_setzero_si512();
  }
  const int64_t ahead = x.size * 4 > kBytesAhead ? x.size * 4 : kBytesAhead;
  for (int64_t k = 0; k < x.size; k += 64) {
    const int64_t left = x.size - k;
    const __mmask64 here =
        left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
    __m512i weight[4];
    UNROLL for (int c = 0; c < 4; ++c) {
      __builtin_prefetch(weights[c] + k + ahead);
      weight[c] = Unsigned(_mm512_maskz_loadu_epi8(here, weights[c] + k));
    }
    UNROLL for (int r = 0; r < R; ++r) {
      const __m512i code =
          _mm512_maskz_loadu_epi8(here, codes + r * x.size + k);
      UNROLL for (int c = 0; c < 4; ++c) {
        AddProducts(sums[r][c], weight[c], code);
      }
    }
  }
  const __mmask8 exist = (1u << count) - 1;
  const __m128 scales = _mm_maskz_loadu_ps(exist, args.scales + output);
  const __m128 bias = _mm_maskz_loadu_ps(exist, args.bias + output);
  UNROLL for (int r = 0; r < R; ++r) {
    const __m128i sum =
        _mm_sub_epi32(SumsOf(sums[r][0], sums[r][1], sums[r][2], sums[r][3]),
                      _mm_set1_epi32(x.offsets[row + r]));
    const __m128 scale = _mm_mul_ps(_mm_set1_ps(x.scales[row + r]), scales);
    _mm_mask_storeu_ps(
        args.result + (row + r) * args.outputs + output, exist,
        _mm_add_ps(_mm_mul_ps(_mm_cvtepi32_ps(sum), scale), bias));
  }
}

// Outputs `begin` to `end` of few rows.
static inline void MultiplyFew(const Product& args, int64_t begin,
                               int64_t end) {
  const int64_t rows = args.x.rows;
  for (int64_t output = begin; output < end; output += 4) {
    const int64_t count = end - output >= 4 ? 4 : end - output;
    const int8_t* weights[4];
    for (int64_t c = 0; c < 4; ++c) {
      // Behind the last output the last is computed again.
      const int64_t n = output + (c < count ? c : count - 1);
      weights[c] = args.weights + n * args.x.size;
    }
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      FewRows<4>(args, row, output, count, weights);
    }
    if (rows - row == 3) FewRows<3>(args, row, output, count, weights);
    if (rows - row == 2) FewRows<2>(args, row, output, count, weights);
    if (rows - row == 1) FewRows<1>(args, row, output, count, weights);
  }
}

// 16 rows of N.
struct Weights {
  const int8_t* rows[kRows];
  float scales[kRows];
  float bias[kRows];
};

// Results [B * kRows, C] as vectors [B][4][C / 4]: vector j of a block of rows
// has the results of its rows j, 4 + j, 8 + j and 12 + j, four outputs of each.
template <int B, int C>
static inline void Tile(const PackedRows& x, int64_t block,
                        const Weights& weights, int from,
                        __m512 (*to)[4][kRows / 4]) {
  const int64_t block_bytes = x.size * kRows;
  const int8_t* codes = x.codes + block * block_bytes;
  const int8_t* bytes[C];
  __m512i sums[B][C];
  UNROLL for (int c = 0; c < C; ++c) {
    bytes[c] = weights.rows[from + c];
    UNROLL for (int b = 0; b < B; ++b) sums[b][c] = _mm512_setzero_si512();
  }
  const int64_t ahead =
      kRows * x.size > kBytesAhead ? kRows * x.size : kBytesAhead;
  for (int64_t k = 0; k < x.size; k += 4) {
    if (k % 64 == 0) {
      UNROLL for (int c = 0; c < C; ++c)
          __builtin_prefetch(bytes[c] + k + ahead);
    }
    __m512i rows[B];
    UNROLL for (int b = 0; b < B; ++b) {
      rows[b] = _mm512_loadu_si512(codes + b * block_bytes + k * kRows);
    }
    UNROLL for (int c = 0; c < C; ++c) {
      int32_t four;
      memcpy(&four, bytes[c] + k, 4);
      const __m512i weight = Unsigned(_mm512_set1_epi32(four));
      UNROLL for (int b = 0; b < B; ++b) {
        AddProducts(sums[b][c], weight, rows[b]);
      }
    }
  }
  UNROLL for (int b = 0; b < B; ++b) {
    const int64_t row = (block + b) * kRows;
    const __m512 row_scales = _mm512_loadu_ps(x.scales + row);
    const __m512i offsets = _mm512_loadu_si512(x.offsets + row);
    UNROLL for (int c = 0; c < C; c += 4) {
      __m512 y[4];
      UNROLL for (int i = 0; i < 4; ++i) {
        const __m512i sum = _mm512_sub_epi32(sums[b][c + i], offsets);
        const __m512 scale = _mm512_set1_ps(weights.scales[from + c + i]);
        y[i] = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                                           _mm512_mul_ps(row_scales, scale)),
                             _mm512_set1_ps(weights.bias[from + c + i]));
      }
      // Turns the 4 x 4 of each 128 bits.
      const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(y[0], y[1]));
      const __m512d b01 = _mm512_castps_pd(_mm512_unpackhi_ps(y[0], y[1]));
      const __m512d c23 = _mm512_castps_pd(_mm512_unpacklo_ps(y[2], y[3]));
      const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(y[2], y[3]));
      __m512(*const out)[kRows / 4] = to[b];
      const int at = (from + c) / 4;
      out[0][at] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c23));
      out[1][at] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c23));
      out[2][at] = _mm512_castpd_ps(_mm512_unpacklo_pd(b01, d));
      out[3][at] = _mm512_castpd_ps(_mm512_unpackhi_pd(b01, d));
    }
  }
}

// B blocks of rows times 16 outputs, to rows of kPanel * 16.
template <int B>
static inline void Blocks(const PackedRows& x, int64_t block,
                          const Weights& weights, float* to) {
  constexpr int kTogether = B == 1 ? 16 : B <= 3 ? 8 : 4;
  __m512 tile[B][4][kRows / 4];
  for (int from = 0; from < kRows; from += kTogether) {
    Tile<B, kTogether>(x, block, weights, from, tile);
  }
  for (int b = 0; b < B; ++b) {
    for (int j = 0; j < 4; ++j) {
      const __m512* y = tile[b][j];
      // Turns the 4 x 4 of 128 bits each.
      const __m512 a = _mm512_shuffle_f32x4(y[0], y[1], 0x44);
      const __m512 c = _mm512_shuffle_f32x4(y[0], y[1], 0xEE);
      const __m512 d = _mm512_shuffle_f32x4(y[2], y[3], 0x44);
      const __m512 e = _mm512_shuffle_f32x4(y[2], y[3], 0xEE);
      const __m512 turned[4] = {
          _mm512_shuffle_f32x4(a, d, 0x88), _mm512_shuffle_f32x4(a, d, 0xDD),
          _mm512_shuffle_f32x4(c, e, 0x88), _mm512_shuffle_f32x4(c, e, 0xDD)};
      for (int i = 0; i < 4; ++i) {
        const int row = b * kRows + 4 * i + j;
        _mm512_storeu_ps(to + row * kPanel * kRows, turned[i]);
      }
    }
  }
}

// B blocks of rows times `count` * 16 outputs.
template <int B>
static inline void Panel(const Product& args, int64_t block,
                         const Weights* weights, int64_t count,
                         int64_t output) {
  alignas(64) float panel[B * kRows * kPanel * kRows];
  for (int64_t i = 0; i < count; ++i) {
    Blocks<B>(args.x, block, weights[i], panel + i * kRows);
  }
  int64_t width = count * kRows;
  if (width > args.outputs - output) width = args.outputs - output;
  for (int64_t i = 0; i < B * kRows; ++i) {
    const int64_t row = block * kRows + i;
    if (row >= args.x.rows) break;
    memcpy(args.result + row * args.outputs + output,
           panel + i * kPanel * kRows, width * sizeof(float));
  }
}

}  // namespace

void PackRows(const float* x, const PackedRows& packed, int64_t begin,
              int64_t end) {
  const int64_t size = packed.size;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kRows;
    const int64_t left = packed.rows - first;
    const int64_t rows = left < kRows ? left : kRows;
    const float* const from = x + first * size;
    int8_t* const to = packed.codes + first * size;
    float factors[kRows];
    int32_t sums[kRows] = {};
    for (int64_t i = 0; i < kRows; ++i) {
      const float peak = i < rows ? Peak(from + i * size, size) : 0;
      factors[i] = peak > kNegligible ? kLargest / peak : 0;
      packed.scales[first + i] = peak * (1 / kLargest);
    }
    if (packed.rows <= kFewRows) {
      for (int64_t i = 0; i < rows; ++i) {
        sums[i] = Quantize(from + i * size, size, factors[i], to + i * size);
      }
    } else {
      alignas(64) int8_t square[kRows][64] = {};
      for (int64_t k = 0; k < size; k += 64) {
        const int64_t count = size - k < 64 ? size - k : 64;
        for (int64_t i = 0; i < rows; ++i) {
          sums[i] +=
              Quantize(from + i * size + k, count, factors[i], square[i]);
        }
        Transpose(square, count / 4, to + k * kRows);
      }
    }
    for (int64_t i = 0; i < kRows; ++i) {
      packed.offsets[first + i] = 128 * sums[i];
    }
  }
}

void Multiply(const Product& args, int64_t begin, int64_t end) {
  const int64_t size = args.x.size;
  if (args.x.rows <= kFewRows) {
    const int64_t last =
        end * kRows < args.outputs ? end * kRows : args.outputs;
    return MultiplyFew(args, begin * kRows, last);
  }
  const int64_t blocks = (args.x.rows + kRows - 1) / kRows;
  Weights weights[kPanel];
  while (begin < end) {
    const int64_t count = end - begin < kPanel ? end - begin : kPanel;
    const int64_t output = begin * kRows;
    for (int64_t i = 0; i < count * kRows; ++i) {
      // Behind the last output the last is computed again.
      const int64_t n =
          output + i < args.outputs ? output + i : args.outputs - 1;
      Weights& some = weights[i / kRows];
      some.rows[i % kRows] = args.weights + n * size;
      some.scales[i % kRows] = args.scales[n];
      some.bias[i % kRows] = args.bias[n];
    }
    int64_t block = 0;
    for (; block + 4 <= blocks; block += 4) {
      Panel<4>(args, block, weights, count, output);
    }
    if (blocks - block == 3) Panel<3>(args, block, weights, count, output);
    if (blocks - block == 2) Panel<2>(args, block, weights, count, output);
    if (blocks - block == 1) Panel<1>(args, block, weights, count, output);
    begin += count;
  }
}

}  // namespace saxml_kernels

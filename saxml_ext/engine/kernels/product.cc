// Compiled for AVX512-VNNI, whose instruction adds to each of 16 sums the
// products of four unsigned and four signed bytes. Activations are made
// unsigned by adding 128; the sum of a row of weights times 128 is taken off in
// the end.
//
// The 16 sums are of 16 rows of activations: four bytes of a row of weights
// meet them all. So weights are read as they are stored, and but once. Of few
// rows most of the 16 would be for nothing; there they are parts of a single
// sum.

#include "saxml_ext/engine/kernels/product.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace saxml_kernels {
namespace {

// As in `quant.py`.
constexpr float kLargest = 127.0f;
constexpr float kNegligible = 1e-30f;
// How long before their use the weights are fetched.
constexpr int64_t kBytesAhead = 8192;

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

// The codes + 128 of 16 numbers from x[k] on; 128 for those behind the last.
static inline __m128i Codes(const float* x, int64_t k, int64_t size,
                            float factor) {
  const int64_t left = size - k;
  const __mmask16 here = left >= 16 ? 0xFFFF : (1u << left) - 1;
  const __m512 scaled =
      _mm512_mul_ps(_mm512_maskz_loadu_ps(here, x + k), _mm512_set1_ps(factor));
  return _mm512_cvtepi32_epi8(
      _mm512_add_epi32(_mm512_cvtps_epi32(scaled), _mm512_set1_epi32(128)));
}

// One row of x to its place in a block of kRows rows.
static inline void PackRow(const float* x, int64_t size, float factor,
                           uint8_t* to) {
  for (int64_t k = 0; k < size; k += 16) {
    alignas(16) uint32_t groups[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(groups),
                    Codes(x, k, size, factor));
    const int64_t count = size - k >= 16 ? 4 : (size - k) / 4;
    for (int64_t g = 0; g < count; ++g) {
      memcpy(to + (k / 4 + g) * kRows * 4, &groups[g], 4);
    }
  }
}

// One of few rows.
static inline void CopyRow(const float* x, int64_t size, float factor,
                           uint8_t* to) {
  for (int64_t k = 0; k < size; k += 16) {
    const int64_t left = size - k;
    const __mmask16 here = left >= 16 ? 0xFFFF : (1u << left) - 1;
    _mm_mask_storeu_epi8(to + k, here, Codes(x, k, size, factor));
  }
}

static inline int32_t SumOfRow(const int8_t* row, int64_t size) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums = _mm512_setzero_si512();
  int64_t k = 0;
  for (; k + 64 <= size; k += 64) {
    sums = _mm512_dpbusd_epi32(sums, ones, _mm512_loadu_si512(row + k));
  }
  const __mmask64 rest = (uint64_t{1} << (size - k)) - 1;
  sums =
      _mm512_dpbusd_epi32(sums, ones, _mm512_maskz_loadu_epi8(rest, row + k));
  return _mm512_reduce_add_epi32(sums);
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

// Four rows of N, from `output` on; those in `here` exist.
struct FourWeights {
  int64_t output;
  __mmask8 here;
  const int8_t* rows[4];
  __m128i offsets;
  __m128 scales;
};

// Results of R rows from `row` on.
template <int R>
static inline void FewRows(const Product& args, int64_t row,
                           const FourWeights& weights) {
  const int64_t size = args.x.size;
  const uint8_t* codes = args.x.codes + row * size;
  __m512i sums[R][4];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_setzero_si512();
  }
  const auto add = [&](int64_t k, auto load) {
    __m512i weight[4];
    for (int c = 0; c < 4; ++c) weight[c] = load(weights.rows[c] + k);
    for (int r = 0; r < R; ++r) {
      const __m512i code = load(codes + r * size + k);
      for (int c = 0; c < 4; ++c) {
        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], code, weight[c]);
      }
    }
  };
  const int64_t ahead = size * 4 > kBytesAhead ? size * 4 : kBytesAhead;
  int64_t k = 0;
  for (; k + 64 <= size; k += 64) {
    for (int c = 0; c < 4; ++c) __builtin_prefetch(weights.rows[c] + k + ahead);
    add(k, [](const void* from) { return _mm512_loadu_si512(from); });
  }
  const __mmask64 rest = (uint64_t{1} << (size - k)) - 1;
  add(k, [=](const void* from) { return _mm512_maskz_loadu_epi8(rest, from); });
  for (int r = 0; r < R; ++r) {
    const __m128i sum =
        _mm_sub_epi32(SumsOf(sums[r][0], sums[r][1], sums[r][2], sums[r][3]),
                      weights.offsets);
    const __m128 scale =
        _mm_mul_ps(_mm_set1_ps(args.x.scales[row + r]), weights.scales);
    float* const to = args.result + (row + r) * args.outputs + weights.output;
    _mm_mask_storeu_ps(to, weights.here,
                       _mm_mul_ps(_mm_cvtepi32_ps(sum), scale));
  }
}

// Outputs `begin` to `end` of few rows.
static inline void MultiplyFew(const Product& args, int64_t begin,
                               int64_t end) {
  const int64_t size = args.x.size, rows = args.x.rows;
  for (int64_t output = begin; output < end; output += 4) {
    FourWeights weights;
    weights.output = output;
    weights.here = end - output >= 4 ? 0xF : (1u << (end - output)) - 1;
    alignas(16) int32_t offsets[4];
    for (int c = 0; c < 4; ++c) {
      // Behind the last output the last is computed again.
      const int64_t n = output + c < end ? output + c : end - 1;
      weights.rows[c] = args.weights + n * size;
      offsets[c] = 128 * SumOfRow(weights.rows[c], size);
    }
    weights.offsets = _mm_load_si128(reinterpret_cast<__m128i*>(offsets));
    weights.scales = _mm_maskz_loadu_ps(weights.here, args.scales + output);
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) FewRows<4>(args, row, weights);
    if (rows - row == 3) FewRows<3>(args, row, weights);
    if (rows - row == 2) FewRows<2>(args, row, weights);
    if (rows - row == 1) FewRows<1>(args, row, weights);
  }
}

// 16 rows of N: weights, their scales, and what has to be taken off.
struct Weights {
  const int8_t* rows[kRows];
  float scales[kRows];
  int32_t offsets[kRows];
};

// Results [B * kRows, C] as vectors [B][4][C / 4]: vector j of a block of rows
// has the results of its rows j, 4 + j, 8 + j and 12 + j, four outputs of each.
template <int B, int C>
static inline void Tile(const uint8_t* codes, int64_t block_bytes,
                        const float* row_scales, const Weights& weights,
                        int from, int64_t size, __m512 (*to)[4][kRows / 4]) {
  __m512i sums[B][C];
  for (int b = 0; b < B; ++b) {
    for (int c = 0; c < C; ++c) sums[b][c] = _mm512_setzero_si512();
  }
  for (int64_t k = 0; k < size; k += 4) {
    __m512i rows[B];
    for (int b = 0; b < B; ++b) {
      rows[b] = _mm512_loadu_si512(codes + b * block_bytes + k * kRows);
    }
    for (int c = 0; c < C; ++c) {
      int32_t four;
      memcpy(&four, weights.rows[from + c] + k, 4);
      const __m512i weight = _mm512_set1_epi32(four);
      for (int b = 0; b < B; ++b) {
        sums[b][c] = _mm512_dpbusd_epi32(sums[b][c], rows[b], weight);
      }
    }
  }
  for (int b = 0; b < B; ++b) {
    const __m512 row_scale = _mm512_loadu_ps(row_scales + b * kRows);
    for (int c = 0; c < C; c += 4) {
      __m512 y[4];
      for (int i = 0; i < 4; ++i) {
        const __m512i sum = _mm512_sub_epi32(
            sums[b][c + i], _mm512_set1_epi32(weights.offsets[from + c + i]));
        y[i] = _mm512_mul_ps(
            _mm512_cvtepi32_ps(sum),
            _mm512_mul_ps(row_scale,
                          _mm512_set1_ps(weights.scales[from + c + i])));
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
  const int64_t block_bytes = x.size * kRows;
  __m512 tile[B][4][kRows / 4];
  for (int from = 0; from < kRows; from += kTogether) {
    Tile<B, kTogether>(x.codes + block * block_bytes, block_bytes,
                       x.scales + block * kRows, weights, from, x.size, tile);
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
  const bool few = packed.rows <= kFewRows;
  for (int64_t row = begin * kRows; row < end * kRows; ++row) {
    uint8_t* const to =
        few ? packed.codes + row * size
            : packed.codes + row / kRows * kRows * size + row % kRows * 4;
    if (row >= packed.rows) {
      if (few) return;
      for (int64_t k = 0; k < size; k += 4) memset(to + k * kRows, 128, 4);
      packed.scales[row] = 0;
      continue;
    }
    const float peak = Peak(x + row * size, size);
    packed.scales[row] = peak * (1 / kLargest);
    const float factor = peak > kNegligible ? kLargest / peak : 0;
    (few ? CopyRow : PackRow)(x + row * size, size, factor, to);
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
      some.offsets[i % kRows] = 128 * SumOfRow(args.weights + n * size, size);
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

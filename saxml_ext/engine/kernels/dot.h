// Adds products of four bytes each to a vector of sums, for the kinds of
// processors that product.cc is compiled for.

#ifndef SAXML_EXT_ENGINE_KERNELS_DOT_H_
#define SAXML_EXT_ENGINE_KERNELS_DOT_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "saxml_ext/engine/kernels/simd.h"

#if defined(__AVX512VNNI__)

// AVX512-VNNI adds to each sum the products of four unsigned and four signed
// bytes. Weights become unsigned by adding 128. At the end, 128 times the sum
// of the activations' codes is subtracted.
constexpr int32_t kOffset = 128;

using Codes = __m512i;
using Weights = __m512i;
using Sums = __m512i;

KERNEL Codes LoadCodes(const int8_t* from) { return _mm512_load_si512(from); }

// Loads 4 * G bytes and repeats them in the whole vector.
template <int G>
KERNEL Weights Repeat(const int8_t* from) {
  __m512i bytes;
  if constexpr (G == 1) {
    int32_t some;
    memcpy(&some, from, sizeof(some));
    bytes = _mm512_set1_epi32(some);
  } else if constexpr (G == 2) {
    int64_t some;
    memcpy(&some, from, sizeof(some));
    bytes = _mm512_set1_epi64(some);
  } else if constexpr (G == 4) {
    bytes = _mm512_broadcast_i32x4(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  } else if constexpr (G == 8) {
    bytes = _mm512_broadcast_i64x4(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  } else {
    bytes = _mm512_loadu_si512(from);
  }
  return _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
}

// With the intrinsic, GCC 12 copies the sums before and after.
KERNEL void AddProducts(Sums& sums, Weights weights, Codes codes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(codes));
}

#else  // AVX2.

// AVX2 adds the products of neighboring unsigned and signed bytes in 16 bits,
// which can hold 128 * 127 twice. So weights lose their sign, and activations
// get it instead. Their codes are at least -127, because -128 cannot change its
// sign.
constexpr int32_t kOffset = 0;

using Codes = __m256i;
using Sums = Ints;
struct Weights {
  __m256i signs, sizes;
};

KERNEL Codes LoadCodes(const int8_t* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

// Loads 4 * G bytes and repeats them in the whole vector.
template <int G>
KERNEL Weights Repeat(const int8_t* from) {
  __m256i bytes;
  if constexpr (G == 1) {
    int32_t some;
    memcpy(&some, from, sizeof(some));
    bytes = _mm256_set1_epi32(some);
  } else if constexpr (G == 2) {
    int64_t some;
    memcpy(&some, from, sizeof(some));
    bytes = _mm256_set1_epi64x(some);
  } else if constexpr (G == 4) {
    bytes = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  } else {
    bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  return {bytes, _mm256_abs_epi8(bytes)};
}

KERNEL void AddProducts(Sums& sums, const Weights& weights, Codes codes) {
  const __m256i pairs = _mm256_maddubs_epi16(
      weights.sizes, _mm256_sign_epi8(codes, weights.signs));
  sums += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#endif

#endif  // SAXML_EXT_ENGINE_KERNELS_DOT_H_

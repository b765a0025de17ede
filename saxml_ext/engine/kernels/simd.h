// Vectors as wide as the processor's registers, based on the compiler's vector
// types. The same code supports AVX-512, AVX2, and the 16 bytes of NEON and
// SSE. The compiler options of the including translation unit determine the
// width.

#ifndef SAXML_EXT_ENGINE_KERNELS_SIMD_H_
#define SAXML_EXT_ENGINE_KERNELS_SIMD_H_

#include <cstdint>
#include <cstring>
#include <utility>

// Everything is static, because units with other options must not share it.
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define KERNEL static ALWAYS_INLINE

#if defined(__AVX512F__)
constexpr int kLanes = 16;
// The number of vectors for sums. The other registers hold operands.
constexpr int kSums = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kSums = 8;
#else
constexpr int kLanes = 4;
constexpr int kSums = 8;
#endif

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
typedef int16_t Shorts __attribute__((vector_size(2 * kLanes)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

// The upper half of a float32.
struct BFloat16 {
  uint16_t bits;
};

KERNEL Floats Load(const float* from) {
  Floats x;
  memcpy(&x, from, sizeof(x));
  return x;
}

KERNEL Floats Load(const BFloat16* from) {
  Halves x;
  memcpy(&x, from, sizeof(x));
  return (Floats)(__builtin_convertvector(x, Ints) << 16);
}

KERNEL Floats Load(const int8_t* from) {
  Bytes x;
  memcpy(&x, from, sizeof(x));
  // GCC 12 converts numbers one by one if their size more than doubles.
  const Shorts wider = __builtin_convertvector(x, Shorts);
  return __builtin_convertvector(__builtin_convertvector(wider, Ints), Floats);
}

KERNEL float One(float x) { return x; }
KERNEL float One(int8_t x) { return x; }
KERNEL float One(BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof(result));
  return result;
}

KERNEL void Store(float* to, Floats x) { memcpy(to, &x, sizeof(x)); }

KERNEL Floats All(float x) { return x - Floats{}; }

KERNEL Floats Max(Floats a, Floats b) { return a > b ? a : b; }

template <typename Places, typename Vector, int... lanes>
KERNEL Vector Shuffled(Vector a, Vector b,
                       std::integer_sequence<int, lanes...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, Places::Of(lanes)...);
#else
  return __builtin_shuffle(a, b, Ints{Places::Of(lanes)...});
#endif
}

// Returns the numbers at Places::Of(0), Places::Of(1), ... of a and b.
// Positions from kLanes on belong to b.
template <typename Places, typename Vector>
KERNEL Vector Shuffle(Vector a, Vector b) {
  return Shuffled<Places>(a, b, std::make_integer_sequence<int, kLanes>());
}

// Alternates numbers of a and of b, from even positions or from odd ones.
template <int odd>
struct ByOnes {
  static constexpr int Of(int i) { return i / 2 * 2 + i % 2 * kLanes + odd; }
};

// Alternates two numbers of a and two of b. Of each four numbers they are the
// first two or the last two.
template <int last>
struct ByTwos {
  static constexpr int Of(int i) {
    return i / 4 * 4 + i % 2 + i / 2 % 2 * kLanes + 2 * last;
  }
};

// Alternates four numbers of a and four of b. Of each eight numbers they are
// the first four or the last four.
template <int last>
struct ByFours {
  static constexpr int Of(int i) {
    return i / 8 * 8 + i % 4 + i / 4 % 2 * kLanes + 4 * last;
  }
};

// Returns eight numbers of a and eight of b, the first or the last ones.
template <int last>
struct ByEights {
  static constexpr int Of(int i) {
    return i % 8 + i / 8 % 2 * kLanes + 8 * last;
  }
};

// Swaps each number with the one `distance` away.
template <int distance>
struct Swapped {
  static constexpr int Of(int i) { return i ^ distance; }
};

template <int distance, typename Vector>
KERNEL Vector AddSwapped(Vector x) {
  return x + Shuffle<Swapped<distance>>(x, x);
}

template <int distance>
KERNEL Floats MaxSwapped(Floats x) {
  return Max(x, Shuffle<Swapped<distance>>(x, x));
}

KERNEL float MaxOf(Floats x) {
  if constexpr (kLanes > 8) x = MaxSwapped<8 % kLanes>(x);
  if constexpr (kLanes > 4) x = MaxSwapped<4 % kLanes>(x);
  return MaxSwapped<1>(MaxSwapped<2>(x))[0];
}

KERNEL float SumOf(Floats x) {
  if constexpr (kLanes > 8) x = AddSwapped<8 % kLanes>(x);
  if constexpr (kLanes > 4) x = AddSwapped<4 % kLanes>(x);
  return AddSwapped<1>(AddSwapped<2>(x))[0];
}

// Returns the sums of four vectors in the first four numbers.
KERNEL Floats SumsOf(Floats a, Floats b, Floats c, Floats d) {
  const Floats ab = Shuffle<ByOnes<0>>(a, b) + Shuffle<ByOnes<1>>(a, b);
  const Floats cd = Shuffle<ByOnes<0>>(c, d) + Shuffle<ByOnes<1>>(c, d);
  Floats sums = Shuffle<ByTwos<0>>(ab, cd) + Shuffle<ByTwos<1>>(ab, cd);
  if constexpr (kLanes > 8) sums = AddSwapped<8 % kLanes>(sums);
  if constexpr (kLanes > 4) sums = AddSwapped<4 % kLanes>(sums);
  return sums;
}

// exp of x <= 0, to 2 units in the last place; 0 below the least normal number.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) is its Taylor polynomial of
// degree 7, whose next term is below 2^-27.
KERNEL Floats Exp(Floats x) {
  const float kLeast = -87.3f;
  const Floats in = Max(x, All(kLeast));
  // Adding 1.5 * 2^23 rounds to an integer, in the low bits of the sum.
  const Floats shifted = in * 1.44269504f + 12582912.0f;
  const Floats n = shifted - 12582912.0f;
  // ln 2 in two parts; products of n and the first are exact.
  const Floats r = (in - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats y = All(1.0f / 5040);
  y = y * r + 1.0f / 720;
  y = y * r + 1.0f / 120;
  y = y * r + 1.0f / 24;
  y = y * r + 1.0f / 6;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  const Floats power = (Floats)(((Ints)shifted - 0x4B400000 + 127) << 23);
  return x < kLeast ? Floats{} : y * power;
}

#endif  // SAXML_EXT_ENGINE_KERNELS_SIMD_H_

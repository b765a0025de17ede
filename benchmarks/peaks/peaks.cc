// Prints the peak rates of one core as JSON:
//
//   peaks (best | avx2) BYTES...
//
// Products run on registers only, in the best instructions of this processor or
// of AVX2. Reads stream through buffers of the given sizes. All rates are per
// CPU second, the best of several trials. A multiplication and an addition
// count as two operations.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "benchmarks/peaks/rates.h"

using benchmarks::Rate;

namespace {

constexpr int kRounds = 1 << 14;
// There are enough independent sums to hide the latency of an instruction.
constexpr int kSums = 12;

// Defines a function that runs an instruction on kSums registers, again and
// again. The assembly keeps the compiler from removing or reordering them.
#define LOOP(NAME, TARGET, TYPE, OPERAND, INSTRUCTION)            \
  __attribute__((target(TARGET))) void NAME() {                   \
    TYPE sums[kSums] = {};                                        \
    const OPERAND a = {}, b = {};                                 \
    for (int round = 0; round < kRounds; ++round) {               \
      _Pragma("GCC unroll 12") for (int i = 0; i < kSums; ++i) {  \
        asm volatile(INSTRUCTION " %2, %1, %0"                    \
                     : "+v"(sums[i])                              \
                     : "v"(a), "v"(b));                           \
      }                                                           \
    }                                                             \
  }

LOOP(Float256, "avx2,fma", __m256, __m256, "vfmadd231ps")
LOOP(Float512, "avx512f", __m512, __m512, "vfmadd231ps")
LOOP(Bfloat512, "avx512f,avx512bf16", __m512, __m512i, "vdpbf16ps")
LOOP(Int512, "avx512f,avx512vnni", __m512i, __m512i, "vpdpbusd")

// Without VNNI, three instructions make sums of four products of bytes. The
// first also saturates, so no exact engine is faster.
__attribute__((target("avx2"))) void Int256() {
  __m256i sums[kSums] = {};
  const __m256i a = {}, b = {};
  for (int round = 0; round < kRounds; ++round) {
    _Pragma("GCC unroll 12") for (int i = 0; i < kSums; ++i) {
      __m256i pairs;
      asm volatile(
          "vpmaddubsw %2, %3, %1\n"
          "vpmaddwd %3, %1, %1\n"
          "vpaddd %1, %0, %0"
          : "+x"(sums[i]), "=&x"(pairs)
          : "x"(a), "x"(b));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || !__builtin_cpu_supports("avx2") ||
      !__builtin_cpu_supports("fma")) {
    std::fprintf(stderr, "peaks: the processor needs AVX2 and FMA.\n");
    return 1;
  }
  const bool wide = std::strcmp(argv[1], "avx2") != 0 &&
                    __builtin_cpu_supports("avx512f");
  const bool vnni = wide && __builtin_cpu_supports("avx512vnni");
  const bool bfloat = wide && __builtin_cpu_supports("avx512bf16");
  // A 32-byte register holds 8 sums of one float32 product each.
  const double unit = 2.0 * 8 * kRounds * kSums;
  const double float32 =
      wide ? Rate(2 * unit, Float512) : Rate(unit, Float256);
  const double bfloat16 = bfloat ? Rate(4 * unit, Bfloat512) : float32;
  const double int8 = vnni ? Rate(8 * unit, Int512) : Rate(4 * unit, Int256);
  std::printf(
      "{\"instructions\": \"%s\", \"float32\": %.4g, \"bfloat16\": %.4g, "
      "\"int8\": %.4g, \"read\": [",
      vnni ? "AVX512-VNNI" : wide ? "AVX512" : "AVX2", float32,
      std::max(float32, bfloat16), std::max({float32, bfloat16, int8}));
  for (int i = 2; i < argc; ++i) {
    const std::vector<char> buffer(std::max(256LL, std::atoll(argv[i])), 1);
    std::printf("%s%.4g", i > 2 ? ", " : "",
                Rate(buffer.size(), [&buffer] {
                  benchmarks::Read(buffer.data(), buffer.size());
                }));
  }
  std::printf("]}\n");
  return 0;
}

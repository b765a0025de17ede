#include "saxml_ext/engine/kernels/dispatch.h"

#include <vector>

#include "saxml_ext/engine/kernels/attention.h"
#include "saxml_ext/engine/kernels/likeliest.h"

namespace saxml_kernels {

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    variants.push_back({"AVX-512", AttendAvx512, FindLikeliestAvx512});
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    variants.push_back({"AVX2", AttendAvx2, FindLikeliestAvx2});
  }
#endif
  variants.push_back({"portable", AttendPortable, FindLikeliestPortable});
  return variants;
}

}  // namespace saxml_kernels

#include "saxml_ext/engine/kernels/dispatch.h"

#include <vector>

#include "saxml_ext/engine/kernels/attention.h"
#include "saxml_ext/engine/kernels/candidates.h"
#include "saxml_ext/engine/kernels/float_product.h"
#include "saxml_ext/engine/kernels/int4_product.h"
#include "saxml_ext/engine/kernels/likeliest.h"
#include "saxml_ext/engine/kernels/product.h"

namespace saxml_kernels {
namespace {

bool avx512_allowed = true;

#if defined(__x86_64__)
bool HasAvx512() {
  return avx512_allowed && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
#endif

}  // namespace

void AllowAvx512(bool allowed) { avx512_allowed = allowed; }

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
#if defined(__x86_64__)
  if (HasAvx512()) {
    variants.push_back({"AVX-512", AttendAvx512, FindLikeliestAvx512,
                        SurveyRowsAvx512, ChooseAvx512, MultiplyFloatsAvx512});
  }
  if (HasAvx2()) {
    variants.push_back({"AVX2", AttendAvx2, FindLikeliestAvx2, SurveyRowsAvx2,
                        ChooseAvx2, MultiplyFloatsAvx2});
  }
#endif
  variants.push_back({"portable", AttendPortable, FindLikeliestPortable,
                      SurveyRowsPortable, ChoosePortable,
                      MultiplyFloatsPortable});
  return variants;
}

std::vector<Multiplier> Multipliers() {
  std::vector<Multiplier> multipliers;
#if defined(__x86_64__)
  if (HasAvx512() && __builtin_cpu_supports("avx512vnni")) {
    multipliers.push_back({"AVX512-VNNI", PackedSizesVnni, PackRowsVnni,
                           MultiplyVnni, MultiplyGatedVnni,
                           MultiplyLikeliestVnni, PackInt4RowsVnni,
                           MultiplyInt4Vnni});
  }
  if (HasAvx2()) {
    multipliers.push_back({"AVX2", PackedSizesAvx2, PackRowsAvx2,
                           MultiplyAvx2, MultiplyGatedAvx2,
                           MultiplyLikeliestAvx2, PackInt4RowsAvx2,
                           MultiplyInt4Avx2});
  }
#endif
  return multipliers;
}

}  // namespace saxml_kernels

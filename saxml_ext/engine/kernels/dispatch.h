// Which variants of the kernels this processor runs.

#ifndef SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_
#define SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

#include <vector>

#include "saxml_ext/engine/kernels/attention.h"
#include "saxml_ext/engine/kernels/candidates.h"
#include "saxml_ext/engine/kernels/float_product.h"
#include "saxml_ext/engine/kernels/likeliest.h"
#include "saxml_ext/engine/kernels/product.h"

namespace saxml_kernels {

// Whether AVX-512 may be used where the processor has it, which it may at first.
// To be called before anything else.
void AllowAvx512(bool allowed);

struct Variant {
  const char* name;
  AttendFunction* attend;
  FindLikeliestFunction* find_likeliest;
  SurveyRowsFunction* survey_rows;
  ChooseFunction* choose;
  MultiplyFloatsFunction* multiply_floats;
};

// Those that this processor can run, the fastest first.
std::vector<Variant> Variants();

struct Multiplier {
  const char* name;
  PackedSizesFunction* packed_sizes;
  PackRowsFunction* pack_rows;
  MultiplyFunction* multiply;
};

// Of products likewise; none where there are neither AVX2 nor AVX512-VNNI.
std::vector<Multiplier> Multipliers();

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

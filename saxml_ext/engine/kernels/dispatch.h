// Lists the variants of the kernels that this processor can run.

#ifndef SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_
#define SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

#include <vector>

#include "saxml_ext/engine/kernels/attention.h"
#include "saxml_ext/engine/kernels/candidates.h"
#include "saxml_ext/engine/kernels/float_product.h"
#include "saxml_ext/engine/kernels/int4_product.h"
#include "saxml_ext/engine/kernels/likeliest.h"
#include "saxml_ext/engine/kernels/product.h"

namespace saxml_kernels {

// Sets whether AVX-512 may be used if the processor has it; the default is yes.
// Call this before anything else.
void AllowAvx512(bool allowed);

struct Variant {
  const char* name;
  AttendFunction* attend;
  FindLikeliestFunction* find_likeliest;
  SurveyRowsFunction* survey_rows;
  ChooseFunction* choose;
  MultiplyFloatsFunction* multiply_floats;
};

// The variants that this processor can run, fastest first.
std::vector<Variant> Variants();

struct Multiplier {
  const char* name;
  PackedSizesFunction* packed_sizes;
  PackRowsFunction* pack_rows;
  MultiplyFunction* multiply;
  MultiplyGatedFunction* multiply_gated;
  MultiplyLikeliestFunction* multiply_likeliest;
  PackInt4RowsFunction* pack_int4_rows;
  MultiplyInt4Function* multiply_int4;
};

// The variants of products. The list is empty without AVX2 and AVX512-VNNI.
std::vector<Multiplier> Multipliers();

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

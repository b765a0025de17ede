// Which variants of the kernels this processor runs.

#ifndef SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_
#define SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

#include <vector>

#include "saxml_ext/engine/kernels/attention.h"
#include "saxml_ext/engine/kernels/likeliest.h"

namespace saxml_kernels {

struct Variant {
  const char* name;
  AttendFunction* attend;
  FindLikeliestFunction* find_likeliest;
};

// Those that this processor can run, the fastest first.
std::vector<Variant> Variants();

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

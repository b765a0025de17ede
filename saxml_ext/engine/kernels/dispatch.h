// Which variant of a kernel this processor runs.

#ifndef SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_
#define SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

#include <vector>

#include "saxml_ext/engine/kernels/attention.h"

namespace saxml_kernels {

struct AttendVariant {
  const char* name;
  AttendFunction* attend;
};

// Those that this processor can run, the fastest first.
std::vector<AttendVariant> AttendVariants();

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_DISPATCH_H_

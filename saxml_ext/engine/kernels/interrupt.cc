// Flags of this process. Running programs read them, and any thread may raise
// them.

#include "xla/ffi/api/ffi.h"

#include <atomic>
#include <cstdint>

namespace saxml_kernels {
namespace {

namespace ffi = xla::ffi;

// If two engines share a flag, they only end each other's calls early.
constexpr int64_t kFlags = 256;
std::atomic<bool> raised[kFlags];

std::atomic<bool>& Flag(int64_t number) { return raised[number % kFlags]; }

// `step` changes from call to call, so that XLA does not merge calls.
ffi::Error CallIsRaised(ffi::BufferR0<ffi::S32> number, ffi::AnyBuffer step,
                        ffi::ResultBufferR0<ffi::PRED> result) {
  (void)step;
  const int32_t which = *number.typed_data();
  if (which < 0) {
    return ffi::Error::InvalidArgument("flags are counted from 0");
  }
  *result->typed_data() = Flag(which).load(std::memory_order_relaxed);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace saxml_kernels

extern "C" void SaxmlSetFlag(int64_t number, bool up) {
  saxml_kernels::Flag(number).store(up, std::memory_order_relaxed);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlIsRaised, saxml_kernels::CallIsRaised,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::BufferR0<xla::ffi::S32>>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Ret<xla::ffi::BufferR0<xla::ffi::PRED>>());

// For translation units that are compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_ARRAY_H_
#define SAXML_EXT_ENGINE_KERNELS_ARRAY_H_

#include <cstdint>
#include <cstdlib>

namespace saxml_kernels {
namespace {

// The memory for `count` elements of type T.
template <typename T>
class Array {
 public:
  explicit Array(int64_t count)
      : data_(static_cast<T*>(malloc(count * sizeof(T) + 1))) {
    if (data_ == nullptr) abort();
  }
  ~Array() { free(data_); }
  Array(const Array&) = delete;

  T* operator+(int64_t at) const { return data_ + at; }
  T& operator[](int64_t at) const { return data_[at]; }

 private:
  T* const data_;
};

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ARRAY_H_

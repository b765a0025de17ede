// Prints the speed of int8 products beside its bound:
//
//   products [avx2] [SIZExOUTPUTS...]
//
// Products of a few rows read all weights, and no product is faster than that
// of many rows. So the bound is the smaller of two rates: 2 * rows operations
// per byte that one core reads, and the rate at 32 rows. The sizes must be
// larger than the cache. All rates are the best of several rounds.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/peaks/rates.h"
#include "saxml_ext/engine/kernels/dispatch.h"
#include "saxml_ext/engine/kernels/product.h"

namespace {

using benchmarks::Rate;

constexpr int kRounds = 3;
constexpr int64_t kManyRows = 32;
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, kManyRows};
// The qkv, up, down and head of GPT-J 6B, then the gate with up and the down of
// Llama 3 8B.
constexpr const char* kShapes[] = {"4096x12288", "4096x16384", "16384x4096",
                                   "4096x50400", "4096x28672", "14336x4096"};

// Returns bytes at the start of a cache line, as XLA allocates them.
int8_t* Align(std::vector<int8_t>& bytes, int64_t size) {
  using saxml_kernels::kLine;
  bytes.resize(size + kLine);
  return bytes.data() + kLine -
         reinterpret_cast<uintptr_t>(bytes.data()) % kLine;
}

// Returns the operations per CPU second of a product and its quantization.
double Multiply(const saxml_kernels::Multiplier& use, int64_t rows,
                int64_t size, int64_t outputs,
                const int8_t* weights) {
  const saxml_kernels::PackedSizes sizes = use.packed_sizes(rows, size, 1);
  std::vector<int8_t> codes;
  std::vector<float> x(rows * size), result(rows * outputs);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i % 255) - 127;
  const std::vector<float> scales(outputs, 1), bias(outputs);
  std::vector<float> row_scales(sizes.blocks * sizes.rows_per_block);
  std::vector<int32_t> offsets(row_scales.size());
  const saxml_kernels::PackedRows packed = {
      rows, size, 1, Align(codes, sizes.bytes), row_scales.data(),
      offsets.data()};
  const saxml_kernels::Product args = {
      packed,        weights, scales.data(), bias.data(), outputs,
      result.data(), outputs};
  constexpr int64_t kOutputs = saxml_kernels::kOutputs;
  return Rate(2.0 * rows * size * outputs, [&] {
    use.pack_rows(x.data(), packed, 0, sizes.blocks);
    use.multiply(args, 0, (outputs + kOutputs - 1) / kOutputs);
  });
}

void PrintRates(const saxml_kernels::Multiplier& use, int64_t size,
                int64_t outputs) {
  const int64_t bytes = size * outputs;
  std::vector<int8_t> kept;
  int8_t* const weights = Align(kept, bytes);
  for (int64_t i = 0; i < bytes; ++i) weights[i] = i * 7 + i / 251;
  double read = 0;
  std::map<int64_t, double> rates;
  // Other programs slow down some of the rounds.
  for (int round = 0; round < kRounds; ++round) {
    read = std::max(
        read, Rate(bytes, [&] { benchmarks::Read(weights, bytes); }));
    for (const int64_t rows : kRows) {
      rates[rows] = std::max(rates[rows],
                             Multiply(use, rows, size, outputs, weights));
    }
  }
  std::printf("%ld x %ld, %s, read %.1f GB/s\n", static_cast<long>(size),
              static_cast<long>(outputs), use.name, 1e-9 * read);
  for (const auto& [rows, rate] : rates) {
    const double bound = std::min(2 * rows * read, rates[kManyRows]);
    std::printf("%4ld rows %6.0f Gop/s, bound %4.0f, %4.0f %%\n",
                static_cast<long>(rows), 1e-9 * rate, 1e-9 * bound,
                100 * rate / bound);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool narrow = argc > 1 && std::strcmp(argv[1], "avx2") == 0;
  saxml_kernels::AllowAvx512(!narrow);
  const auto multipliers = saxml_kernels::Multipliers();
  if (multipliers.empty()) {
    std::fprintf(stderr, "products: the processor needs AVX2 and FMA.\n");
    return 1;
  }
  std::vector<std::string> shapes(argv + 1 + narrow, argv + argc);
  if (shapes.empty()) shapes.assign(std::begin(kShapes), std::end(kShapes));
  for (const std::string& shape : shapes) {
    long size = 0, outputs = 0;
    char rest;
    if (std::sscanf(shape.c_str(), "%ldx%ld%c", &size, &outputs, &rest) != 2 ||
        size < 1 || outputs < 1) {
      std::fprintf(stderr, "products: %s is not SIZExOUTPUTS.\n",
                   shape.c_str());
      return 1;
    }
    PrintRates(multipliers.front(), size, outputs);
  }
  return 0;
}

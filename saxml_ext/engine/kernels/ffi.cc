// The functions that XLA calls.

#include "xla/ffi/api/ffi.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "saxml_ext/engine/kernels/attention.h"
#include "saxml_ext/engine/kernels/candidates.h"
#include "saxml_ext/engine/kernels/dispatch.h"
#include "saxml_ext/engine/kernels/float_product.h"
#include "saxml_ext/engine/kernels/int4_product.h"
#include "saxml_ext/engine/kernels/likeliest.h"
#include "saxml_ext/engine/kernels/product.h"
#include "saxml_ext/engine/kernels/threads.h"

namespace saxml_kernels {
namespace {

namespace ffi = xla::ffi;

// Sets the type of keys and values. Returns false if there is no such kernel.
bool SetType(ffi::DataType from, Type& to) {
  switch (from) {
    case ffi::F32:
      to = Type::kFloat32;
      return true;
    case ffi::BF16:
      to = Type::kBFloat16;
      return true;
    case ffi::S8:
      to = Type::kInt8;
      return true;
    default:
      return false;
  }
}

// `rest` has the ancestry of each suffix block, then the keys and values of
// each segment and each suffix block. In int8 their scales follow each of them.
// If they are stacked, `layer` is the layer to read.
ffi::Error CallAttend(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> queries,
                      ffi::Buffer<ffi::S32> reach,
                      ffi::Buffer<ffi::S32> places,
                      ffi::Buffer<ffi::S32> layer, ffi::RemainingArgs rest,
                      ffi::ResultBuffer<ffi::F32> mixed, int64_t num_segments,
                      int64_t num_suffixes) {
  std::vector<ffi::AnyBuffer> buffers;
  for (size_t i = 0; i < rest.size(); ++i) {
    buffers.push_back(*rest.get<ffi::AnyBuffer>(i));
  }
  const size_t first = num_suffixes, blocks = num_segments + num_suffixes;
  Attention args;
  if (num_suffixes < 1 || buffers.size() <= first ||
      !SetType(buffers[first].element_type(), args.type)) {
    return ffi::Error::InvalidArgument("no keys of a known type");
  }
  const bool quantized = args.type == Type::kInt8;
  if (buffers.size() != first + (quantized ? 4 : 2) * blocks) {
    return ffi::Error::InvalidArgument(
        std::to_string(buffers.size()) + " buffers do not fit " +
        std::to_string(num_segments) + " segments and " +
        std::to_string(num_suffixes) + " suffix blocks");
  }

  auto next = buffers.begin();
  args.wide_ancestry = next->element_type() == ffi::S16;
  std::vector<const void*> ancestry;
  while (ancestry.size() < first) {
    if (next->element_type() != (args.wide_ancestry ? ffi::S16 : ffi::S8)) {
      return ffi::Error::InvalidArgument("ancestry is neither int8 nor int16");
    }
    ancestry.push_back((next++)->untyped_data());
  }
  const size_t stacked = buffers[first].dimensions().size() - 4;
  if (stacked > 1) return ffi::Error::InvalidArgument("keys are not [S,N,H,T]");
  // Returns the start of the layer in a buffer.
  const auto start = [&](const ffi::AnyBuffer& buffer) -> const void* {
    int64_t offset = 0;
    if (stacked == 1) {
      offset = *layer.typed_data() * (buffer.size_bytes() /
                                      buffer.dimensions()[0]);
    }
    return static_cast<const char*>(buffer.untyped_data()) + offset;
  };
  std::vector<Block> all;
  while (all.size() < blocks) {
    Block block = {};
    block.keys = start(*next++);
    if (quantized) block.key_scales = static_cast<const float*>(start(*next++));
    block.length = next->dimensions()[stacked + 2];
    block.values = start(*next++);
    if (quantized) {
      block.value_scales = static_cast<const float*>(start(*next++));
    }
    if (all.size() >= static_cast<size_t>(num_segments)) {
      block.steps = buffers[all.size() - num_segments].dimensions()[2];
    }
    all.push_back(block);
  }

  const auto dims = queries.dimensions();
  args.slots = dims[0];
  args.places = places.typed_data();
  const int64_t held = buffers[first].dimensions()[stacked];
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    if (args.places[slot] < 0 || args.places[slot] >= held) {
      return ffi::Error::InvalidArgument(
          "a slot is at place " + std::to_string(args.places[slot]) +
          " of blocks of " + std::to_string(held) + " slots");
    }
  }
  args.heads = dims[1];
  args.beams = buffers[0].dimensions()[1];
  args.group = dims[2] / args.beams;
  args.head_dim = dims[3];
  args.queries = queries.typed_data();
  args.mixed = mixed->typed_data();
  args.reach = reach.typed_data();
  args.segments = all.data();
  args.num_segments = num_segments;
  args.suffixes = all.data() + num_segments;
  args.num_suffixes = num_suffixes;
  args.ancestry = ancestry.data();
  static AttendFunction* const attend = Variants().front().attend;
  ForAll(pool, args.slots * args.heads, 1,
         [&](int64_t begin, int64_t end) { attend(args, begin, end); });
  return ffi::Error::Success();
}

ffi::Error CallFindLikeliest(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> logits,
                             ffi::Buffer<ffi::S32> barred,
                             ffi::ResultBuffer<ffi::F32> peaks,
                             ffi::ResultBuffer<ffi::F32> log_totals,
                             ffi::ResultBuffer<ffi::F32> values,
                             ffi::ResultBuffer<ffi::S32> tokens) {
  const auto dims = logits.dimensions();
  Likeliest args;
  args.rows_per_slot = dims[1];
  args.vocabulary = dims[2];
  args.count = values->dimensions()[2];
  args.logits = logits.typed_data();
  args.barred = barred.typed_data();
  args.most_barred = barred.dimensions()[1];
  args.peaks = peaks->typed_data();
  args.log_totals = log_totals->typed_data();
  args.values = values->typed_data();
  args.tokens = tokens->typed_data();
  if (args.count < 1 || args.count > args.vocabulary) {
    return ffi::Error::InvalidArgument(
        std::to_string(args.count) + " tokens of " +
        std::to_string(args.vocabulary) + " are asked for");
  }
  static FindLikeliestFunction* const find = Variants().front().find_likeliest;
  ForAll(pool, dims[0] * dims[1], 1,
         [&](int64_t begin, int64_t end) { find(args, begin, end); });
  return ffi::Error::Success();
}

ffi::Error CallFindCandidates(
    ffi::ThreadPool pool, ffi::Buffer<ffi::F32> logits,
    ffi::Buffer<ffi::F32> scores, ffi::Buffer<ffi::S32> barred,
    ffi::Buffer<ffi::S32> active, ffi::ResultBuffer<ffi::F32> peaks,
    ffi::ResultBuffer<ffi::F32> log_totals, ffi::ResultBuffer<ffi::F32> sums,
    ffi::ResultBuffer<ffi::F32> log_probs, ffi::ResultBuffer<ffi::S32> rows,
    ffi::ResultBuffer<ffi::S32> tokens) {
  const auto dims = logits.dimensions();
  Candidates args;
  args.slots = dims[0];
  args.rows_per_slot = dims[1];
  args.vocabulary = dims[2];
  args.count = sums->dimensions()[1];
  args.logits = logits.typed_data();
  args.scores = scores.typed_data();
  args.barred = barred.typed_data();
  args.most_barred = barred.dimensions()[1];
  args.active = active.typed_data();
  args.peaks = peaks->typed_data();
  args.log_totals = log_totals->typed_data();
  args.sums = sums->typed_data();
  args.log_probs = log_probs->typed_data();
  args.rows = rows->typed_data();
  args.tokens = tokens->typed_data();
  if (args.count < 1) {
    return ffi::Error::InvalidArgument("no candidates are asked for");
  }
  const int64_t all = args.slots * args.rows_per_slot;
  static thread_local std::vector<float> maxima;
  maxima.resize(all * MaximaOf(args.vocabulary));
  args.maxima = maxima.data();
  static const Variant use = Variants().front();
  ForAll(pool, all, 1, [&](int64_t begin, int64_t end) {
    use.survey_rows(args, begin, end);
  });
  ForAll(pool, args.slots, 1, [&](int64_t begin, int64_t end) {
    use.choose(args, begin, end);
  });
  return ffi::Error::Success();
}

// The number of kOutputs in N outputs.
int64_t Tiles(int64_t outputs) { return (outputs + kOutputs - 1) / kOutputs; }

// Quantizes x for the fastest int8 product of this processor. Then it calls
// multiply(multiplier, packed rows, begin, end) for parts of [0, count), in
// multiples of `step`.
template <typename Multiply>
ffi::Error ForParts(ffi::ThreadPool& pool, const ffi::Buffer<ffi::F32>& x,
                    int64_t planes, int64_t count, int64_t step,
                    const Multiply& multiply) {
  static const std::vector<Multiplier> multipliers = Multipliers();
  if (multipliers.empty() || planes < 1 || planes > 2) {
    return ffi::Error::InvalidArgument(
        "this processor has no product of " + std::to_string(planes) +
        " planes of int8");
  }
  const Multiplier& use = multipliers.front();
  const int64_t rows = x.dimensions()[0], size = x.dimensions()[1];
  const PackedSizes sizes = use.packed_sizes(rows, size, planes);
  // The buffer is kept. Newly allocated memory costs as much as a small
  // product.
  static thread_local std::vector<int8_t> codes;
  static thread_local std::vector<float> row_scales;
  static thread_local std::vector<int32_t> offsets;
  codes.resize(sizes.bytes + kLine);
  row_scales.resize(sizes.blocks * sizes.rows_per_block);
  offsets.resize(planes * sizes.blocks * sizes.rows_per_block);
  const auto misplaced = reinterpret_cast<uintptr_t>(codes.data()) % kLine;
  const PackedRows packed = {
      rows, size, planes, codes.data() + kLine - misplaced,
      row_scales.data(), offsets.data()};
  ForAll(pool, sizes.blocks, 1, [&](int64_t begin, int64_t end) {
    use.pack_rows(x.typed_data(), packed, begin, end);
  });
  ForAll(pool, count, step, [&](int64_t begin, int64_t end) {
    multiply(use, packed, begin, end);
  });
  return ffi::Error::Success();
}

// Returns the bytes before the weights of a layer: of a matrix [N, K], or of
// one of stacked ones [L, N, K].
template <typename Buffer>
int64_t OffsetOf(const Buffer& stacked, const ffi::Buffer<ffi::S32>& layer) {
  const auto dims = stacked.dimensions();
  if (dims.size() < 3) return 0;
  return *layer.typed_data() * (stacked.size_bytes() / dims[0]);
}

// Returns the codes of a layer.
int8_t* LayerOf(ffi::Buffer<ffi::S8>& stacked,
                const ffi::Buffer<ffi::S32>& layer) {
  return stacked.typed_data() + OffsetOf(stacked, layer);
}

ffi::Error CallMultiply(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                        ffi::Buffer<ffi::S8> weights,
                        ffi::Buffer<ffi::F32> scales,
                        ffi::Buffer<ffi::F32> bias,
                        ffi::Buffer<ffi::S32> layer,
                        ffi::ResultBuffer<ffi::F32> result, int64_t planes) {
  const int64_t outputs = result->dimensions()[1];
  return ForParts(
      pool, x, planes, Tiles(outputs), kPanel / kOutputs,
      [&](const Multiplier& use, const PackedRows& packed, int64_t begin,
          int64_t end) {
        const Product args = {
            packed,  LayerOf(weights, layer), scales.typed_data(),
            bias.typed_data(), outputs, result->typed_data(), outputs};
        use.multiply(args, begin, end);
      });
}

ffi::Error CallMultiplyGated(
    ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::S8> gate,
    ffi::Buffer<ffi::F32> gate_scales, ffi::Buffer<ffi::F32> gate_bias,
    ffi::Buffer<ffi::S8> up, ffi::Buffer<ffi::F32> up_scales,
    ffi::Buffer<ffi::F32> up_bias, ffi::Buffer<ffi::S32> layer,
    ffi::ResultBuffer<ffi::F32> result, int64_t planes) {
  const int64_t outputs = result->dimensions()[1];
  return ForParts(
      pool, x, planes, Tiles(outputs), kPanel / kOutputs,
      [&](const Multiplier& use, const PackedRows& packed, int64_t begin,
          int64_t end) {
        const Product of_gate = {
            packed,  LayerOf(gate, layer), gate_scales.typed_data(),
            gate_bias.typed_data(), outputs, result->typed_data(), outputs};
        const Product of_up = {
            packed,  LayerOf(up, layer), up_scales.typed_data(),
            up_bias.typed_data(), outputs, result->typed_data(), outputs};
        use.multiply_gated(of_gate, of_up, begin, end);
      });
}

ffi::Error CallMultiplyInt4(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                            ffi::Buffer<ffi::U8> weights,
                            ffi::Buffer<ffi::F32> scales,
                            ffi::Buffer<ffi::F32> bias,
                            ffi::Buffer<ffi::S32> layer,
                            ffi::ResultBuffer<ffi::F32> result) {
  static const std::vector<Multiplier> multipliers = Multipliers();
  const int64_t rows = x.dimensions()[0], size = x.dimensions()[1];
  const int64_t groups = size / kInt4Group;
  const int64_t outputs = result->dimensions()[1];
  const int64_t tiles = (outputs + kInt4Outputs - 1) / kInt4Outputs;
  const auto dims = weights.dimensions();
  if (multipliers.empty() || size % kInt4Group ||
      dims[dims.size() - 2] != tiles || dims.back() != groups * kInt4Bytes) {
    return ffi::Error::InvalidArgument(
        "this processor has no product of int4 with " + std::to_string(size) +
        " numbers in a row, or the weights have another shape");
  }
  const Multiplier& use = multipliers.front();
  // The buffers are kept, as in ForParts.
  static thread_local std::vector<int8_t> codes;
  static thread_local std::vector<float> row_scales, sums;
  codes.resize(rows * size);
  row_scales.resize(rows * groups);
  sums.resize(rows * groups);
  const Int4Rows packed = {rows, groups, codes.data(), row_scales.data(),
                           sums.data()};
  ForAll(pool, rows, 16, [&](int64_t begin, int64_t end) {
    use.pack_int4_rows(x.typed_data(), packed, begin, end);
  });
  const Int4Product args = {packed,
                            weights.typed_data() + OffsetOf(weights, layer),
                            scales.typed_data(),
                            bias.typed_data(),
                            outputs,
                            result->typed_data()};
  ForAll(pool, tiles, 4, [&](int64_t begin, int64_t end) {
    use.multiply_int4(args, begin, end);
  });
  return ffi::Error::Success();
}

// Each part of the outputs has its own results, [P, M, ...].
ffi::Error CallMultiplyLikeliest(
    ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::S8> weights,
    ffi::Buffer<ffi::F32> scales, ffi::Buffer<ffi::F32> bias,
    ffi::ResultBuffer<ffi::F32> peaks, ffi::ResultBuffer<ffi::F32> totals,
    ffi::ResultBuffer<ffi::F32> values, ffi::ResultBuffer<ffi::S32> tokens,
    int64_t planes) {
  const int64_t outputs = weights.dimensions()[0];
  const auto dims = values->dimensions();
  const int64_t parts = dims[0], rows = dims[1], count = dims[2];
  // Parts are whole panels, and all but the last have the same size.
  const int64_t panels = (outputs + kPanel - 1) / kPanel;
  const int64_t size = (panels + parts - 1) / parts * (kPanel / kOutputs);
  return ForParts(
      pool, x, planes, parts, 1,
      [&](const Multiplier& use, const PackedRows& packed, int64_t begin,
          int64_t end) {
        const Product args = {packed,           weights.typed_data(),
                              scales.typed_data(), bias.typed_data(),
                              outputs,          nullptr,
                              0};
        for (int64_t part = begin; part < end; ++part) {
          const int64_t at = part * rows;
          use.multiply_likeliest(
              args,
              {count, peaks->typed_data() + at, totals->typed_data() + at,
               values->typed_data() + at * count,
               tokens->typed_data() + at * count},
              part * size, (part + 1) * size);
        }
      });
}

// Fills memory with zeros. Whole pages are given back to the system, which
// makes new ones when they are first used.
ffi::Error CallZeros(ffi::Result<ffi::AnyBuffer> result) {
  char* const begin = static_cast<char*>(result->untyped_data());
  char* const end = begin + result->size_bytes();
#if defined(__linux__)
  const uintptr_t page = sysconf(_SC_PAGESIZE);
  char* const first = reinterpret_cast<char*>(
      (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page);
  char* const last = reinterpret_cast<char*>(
      reinterpret_cast<uintptr_t>(end) / page * page);
  if (first < last) {
    const size_t size = last - first;
    // A huge page would be used as a whole. The advice may be unknown.
    madvise(first, size, MADV_NOHUGEPAGE);
    if (madvise(first, size, MADV_DONTNEED) == 0) {
      memset(begin, 0, first - begin);
      memset(last, 0, end - last);
      return ffi::Error::Success();
    }
  }
#endif
  memset(begin, 0, end - begin);
  return ffi::Error::Success();
}

ffi::Error CallMultiplyFloats(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                              ffi::AnyBuffer weights,
                              ffi::Buffer<ffi::F32> bias,
                              ffi::Buffer<ffi::S32> layer,
                              ffi::ResultBuffer<ffi::F32> result,
                              bool outputs_first) {
  const bool bfloat16 = weights.element_type() == ffi::BF16;
  if (!bfloat16 && weights.element_type() != ffi::F32) {
    return ffi::Error::InvalidArgument("weights are not float32 or bfloat16");
  }
  const int64_t rows = x.dimensions()[0], size = x.dimensions()[1];
  const int64_t outputs = result->dimensions()[1];
  const char* const all = static_cast<const char*>(weights.untyped_data());
  const FloatProduct args = {rows,
                             size,
                             outputs,
                             x.typed_data(),
                             all + OffsetOf(weights, layer),
                             bfloat16,
                             outputs_first,
                             bias.typed_data(),
                             result->typed_data()};
  static MultiplyFloatsFunction* const multiply =
      Variants().front().multiply_floats;
  ForAll(pool, (outputs + kFloatOutputs - 1) / kFloatOutputs, 1,
         [&](int64_t begin, int64_t end) { multiply(args, begin, end); });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace saxml_kernels

extern "C" void SaxmlAllowAvx512(bool allowed) {
  saxml_kernels::AllowAvx512(allowed);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlAttend, saxml_kernels::CallAttend,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .RemainingArgs()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Attr<int64_t>("segments")
                                  .Attr<int64_t>("suffixes"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlFindLikeliest,
                              saxml_kernels::CallFindLikeliest,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::S32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlFindCandidates,
                              saxml_kernels::CallFindCandidates,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::S32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlMultiply, saxml_kernels::CallMultiply,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S8>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Attr<int64_t>("planes"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlMultiplyGated,
                              saxml_kernels::CallMultiplyGated,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S8>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S8>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Attr<int64_t>("planes"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlMultiplyLikeliest,
                              saxml_kernels::CallMultiplyLikeliest,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S8>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Attr<int64_t>("planes"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlMultiplyInt4,
                              saxml_kernels::CallMultiplyInt4,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::U8>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(SaxmlMultiplyFloats,
                              saxml_kernels::CallMultiplyFloats,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Attr<bool>("outputs_first"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    SaxmlZeros, saxml_kernels::CallZeros,
    xla::ffi::Ffi::Bind().Ret<xla::ffi::AnyBuffer>());

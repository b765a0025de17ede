// Attention of a decode step: each slot reads the keys that it has, no others.

#ifndef SAXML_EXT_ENGINE_KERNELS_ATTENTION_H_
#define SAXML_EXT_ENGINE_KERNELS_ATTENTION_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: S slots, N heads of keys, K beams, G queries of a beam that share a
// head of keys, H head width, T columns of a block, W steps of a suffix block.

enum class Type { kFloat32, kBFloat16, kInt8 };

// Keys [S, N, H, T] of prompts, [S, N, T, H] of decode steps, and values [S, N,
// T, H]; of int8 also their scales, [S, N, T] each.
struct Block {
  const void* keys;
  const void* values;
  const float* key_scales;
  const float* value_scales;
  int64_t length;
};

struct Attention {
  Type type;  // Of keys and values.
  int64_t slots, heads, beams, group, head_dim;
  const float* queries;  // [S, N, K * G, H]: row k * G + g is of beam k.
  float* mixed;          // The same; zeros where nothing is to be read.
  // [S]: tokens of the prompt; below 0: nobody waits for this slot.
  const int32_t* reach;
  // The prompt's blocks, in order.
  const Block* segments;
  int64_t num_segments;
  // Blocks of decode steps: T = W * K, step-major.
  const Block* suffixes;
  int64_t num_suffixes;
  // Of each suffix block, [S, K, W] int8, or if wide int16: which row of a step
  // belongs to a beam's past; below 0: none.
  bool wide_ancestry;
  const void* const* ancestry;

  int64_t rows() const { return beams * group; }
};

// Does the heads `begin` to `end` of S * N.
using AttendFunction = void(const Attention& args, int64_t begin, int64_t end);

// The same for different processors.
AttendFunction AttendPortable;
#if defined(__x86_64__)
AttendFunction AttendAvx2;
AttendFunction AttendAvx512;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ATTENTION_H_

// Attention of a decode step. Each slot reads only its own keys.

#ifndef SAXML_EXT_ENGINE_KERNELS_ATTENTION_H_
#define SAXML_EXT_ENGINE_KERNELS_ATTENTION_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: S slots to compute, B slots of the blocks, N heads of keys, K beams,
// G queries of a beam that share a head of keys, H head width, T columns of a
// block, W steps of a suffix block.

enum class Type { kFloat32, kBFloat16, kInt8 };

// Keys [B, N, H, T] of prompts, [B, N, T, H] of decode steps, and values [B, N,
// T, H]; of int8 also their scales, [B, N, T] each.
struct Block {
  const void* keys;
  const void* values;
  const float* key_scales;
  const float* value_scales;
  int64_t length;
  int64_t steps;  // W in a block of decode steps.
};

struct Attention {
  Type type;  // The type of keys and values.
  int64_t slots, heads, beams, group, head_dim;
  const float* queries;  // [S, N, K * G, H]; row k * G + g belongs to beam k.
  float* mixed;          // Same shape; zeros for slots without results.
  // [S]: the number of tokens in the prompt. If negative, the slot's result is
  // unused.
  const int32_t* reach;
  const int32_t* places;  // [S]: the slot's position in the blocks.
  // The prompt's blocks, in order.
  const Block* segments;
  int64_t num_segments;
  // Blocks of decode steps, in the order of steps. Each step has T / W >= K
  // rows.
  const Block* suffixes;
  int64_t num_suffixes;
  // The ancestry of each suffix block, [S, K, W] int8, or int16 if `wide`: the
  // row of a step that belongs to a beam's past. Negative values stand for no
  // row.
  bool wide_ancestry;
  const void* const* ancestry;

  int64_t rows() const { return beams * group; }
};

// Computes the heads `begin` to `end` of S * N.
using AttendFunction = void(const Attention& args, int64_t begin, int64_t end);

// Variants of this function for different processors.
AttendFunction AttendPortable;
#if defined(__x86_64__)
AttendFunction AttendAvx2;
AttendFunction AttendAvx512;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ATTENTION_H_

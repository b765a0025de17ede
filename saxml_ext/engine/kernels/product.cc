// Compiled once for each kind of processor. Compiler options set the names of
// the functions: PACKED_SIZES, PACK_ROWS, MULTIPLY, MULTIPLY_GATED.
//
// A lane of a vector sums the products of one row of activations and one row of
// weights. A block of rows fills a vector's lanes. With fewer rows than lanes,
// a row has several lanes, which take turns by groups of four bytes. Their sums
// are added at the end. So all lanes are used for any number of rows, and
// weights are read once in the order of storage.
//
// codes: [groups, steps, blocks and planes of a group, rows of a block, 4 *
// lanes of a row] int8. A group is multiplied together. A step is one vector
// for each of its planes. It is multiplied with the same number of bytes of a
// row of weights as it has of each row of activations, repeated for each row.

#include "saxml_ext/engine/kernels/product.h"

#include <cstdint>
#include <cstring>

#include "saxml_ext/engine/kernels/dot.h"
#include "saxml_ext/engine/kernels/product_rows.h"
#include "saxml_ext/engine/kernels/simd.h"

// Precedes each loop over an array of sums. An unrolled loop keeps the sums in
// registers.
#define UNROLL _Pragma("GCC unroll 32")

namespace saxml_kernels {
namespace {

// Letters: B planes of blocks, C outputs, G lanes of a row.

// True if a core computes longer than it reads weights. It then prefetches them
// into the first-level cache, in the order of storage, at this minimum
// distance. With few rows, it prefetches each row of weights two tiles ahead
// into the second level. Several streams are faster than one. On an AMD EPYC, 1
// row then reads 30 GB/s, and 24 GB/s in the order of storage.
template <int G>
constexpr bool kMany = kLanes / G >= 8;
constexpr int64_t kBytesAhead = 16384;

// The integers of a panel: [planes of blocks, parts, outputs / 4] vectors. Each
// vector has four outputs of kFours rows. Each row of a block is in one of the
// parts.
constexpr int kFours = kLanes / 4;
constexpr int64_t kPart = kPanel / 4;

constexpr int Parts(int lanes) { return lanes < 4 ? 4 / lanes : 1; }

// Returns the row of its block at position `four` of a part, or -1 for none.
constexpr int RowAt(int lanes, int part, int four) {
  if (lanes < 4) return four * Parts(lanes) + part;
  return four * 4 % lanes == 0 ? four * 4 / lanes : -1;
}

// Writes the sums of four outputs to the parts of a panel.
template <int G>
KERNEL void StoreSums(Ints x0, Ints x1, Ints x2, Ints x3, Ints* to) {
  const Ints even0 = Shuffle<ByOnes<0>>(x0, x1);
  const Ints odd0 = Shuffle<ByOnes<1>>(x0, x1);
  const Ints even1 = Shuffle<ByOnes<0>>(x2, x3);
  const Ints odd1 = Shuffle<ByOnes<1>>(x2, x3);
  if constexpr (G == 1) {
    to[0] = Shuffle<ByTwos<0>>(even0, even1);
    to[kPart] = Shuffle<ByTwos<0>>(odd0, odd1);
    to[2 * kPart] = Shuffle<ByTwos<1>>(even0, even1);
    to[3 * kPart] = Shuffle<ByTwos<1>>(odd0, odd1);
    return;
  }
  const Ints both0 = even0 + odd0, both1 = even1 + odd1;
  const Ints first = Shuffle<ByTwos<0>>(both0, both1);
  const Ints last = Shuffle<ByTwos<1>>(both0, both1);
  if constexpr (G == 2) {
    to[0] = first;
    to[kPart] = last;
  } else if constexpr (G >= 4) {
    Ints sums = first + last;
    if constexpr (G > 4) sums = AddSwapped<4 % kLanes>(sums);
    if constexpr (G > 8) sums = AddSwapped<8 % kLanes>(sums);
    to[0] = sums;
  }
}

// Transposes kFours vectors of four outputs of kFours rows.
KERNEL void Turn(const Ints* from, Ints* rows) {
  if constexpr (kFours == 2) {
    rows[0] = Shuffle<ByFours<0>>(from[0], from[1]);
    rows[1] = Shuffle<ByFours<1>>(from[0], from[1]);
  } else {
    const Ints even0 = Shuffle<ByFours<0>>(from[0], from[1]);
    const Ints odd0 = Shuffle<ByFours<1>>(from[0], from[1]);
    const Ints even1 = Shuffle<ByFours<0>>(from[2], from[3]);
    const Ints odd1 = Shuffle<ByFours<1>>(from[2], from[3]);
    rows[0] = Shuffle<ByEights<0>>(even0, even1);
    rows[1] = Shuffle<ByEights<0>>(odd0, odd1);
    rows[2] = Shuffle<ByEights<1>>(even0, even1);
    rows[3] = Shuffle<ByEights<1>>(odd0, odd1);
  }
}

// Writes the sums of B planes of blocks from `block` on and of C outputs to a
// panel. The weights of the outputs are `stride` bytes apart.
template <int B, int C, int G>
static inline void Tile(const PackedRows& x, int64_t block,
                        const int8_t* weights, int64_t stride, Ints* to) {
  const int64_t steps = Steps(x.size, G);
  const int8_t* codes = x.codes + block * steps * kBytes;
  const int8_t* ahead =
      weights + (C * stride > kBytesAhead ? C * stride : kBytesAhead);
  const int64_t tiles_ahead = 2 * C * stride;
  Sums sums[B][C];
  UNROLL for (int c = 0; c < C; ++c) {
    UNROLL for (int b = 0; b < B; ++b) sums[b][c] = Sums{};
  }
  // With many rows, a prefetch serves several steps or a step has several. With
  // few rows, each row of weights has one. The processor then fetches neighbors
  // of lines by itself, and a single row needs every second line only.
  constexpr int kLines = C * G > 16 ? C * G / 16 : 1;
  constexpr int64_t kSteps = kMany<G> ? 16 * kLines / (C * G)
                             : G < 16 ? 16 / G
                                      : 2;
  const int64_t whole = x.size / (4 * G);
  int8_t rest[C * 4 * G];
  for (int64_t step = 0; step < steps;) {
    const int64_t end = step < whole ? whole : steps;
    if (step == whole) {
      // The remainder is less than a step, so it is padded with zeros.
      memset(rest, 0, sizeof(rest));
      for (int c = 0; c < C; ++c) {
        memcpy(rest + c * 4 * G, weights + c * stride + step * 4 * G,
               x.size - step * 4 * G);
      }
      weights = rest;
      stride = 4 * G;
    }
    // Each pointer serves four outputs. More pointers would not fit in
    // registers.
    const int8_t* fours[C / 4];
    UNROLL for (int c = 0; c < C / 4; ++c) fours[c] = weights + c * 4 * stride;
    for (; step < end; ++step) {
      if (step % kSteps == 0) {
        if constexpr (kMany<G>) {
          UNROLL for (int i = 0; i < kLines; ++i) {
            __builtin_prefetch(ahead + i * kLine);
          }
          ahead += kLines * kLine;
        } else {
          UNROLL for (int c = 0; c < C; ++c) {
            __builtin_prefetch(fours[c / 4] + c % 4 * stride + tiles_ahead, 0,
                               2);
          }
        }
      }
      Codes rows[B];
      UNROLL for (int b = 0; b < B; ++b) {
        rows[b] = LoadCodes(codes + (step * B + b) * kBytes);
      }
      UNROLL for (int c = 0; c < C; ++c) {
        const Weights weight = Repeat<G>(fours[c / 4] + c % 4 * stride);
        UNROLL for (int b = 0; b < B; ++b) {
          AddProducts(sums[b][c], weight, rows[b]);
        }
      }
      UNROLL for (int c = 0; c < C / 4; ++c) {
        fours[c] += 4 * G;
        // Otherwise GCC would use a single pointer and many offsets.
        asm("" : "+r"(fours[c]));
      }
    }
  }
  UNROLL for (int b = 0; b < B; ++b) {
    UNROLL for (int c = 0; c < C; c += 4) {
      StoreSums<G>((Ints)sums[b][c], (Ints)sums[b][c + 1],
                   (Ints)sums[b][c + 2], (Ints)sums[b][c + 3],
                   to + b * Parts(G) * kPart + c / 4);
    }
  }
}

// Computes the results of a block for kLanes outputs from `output` on, from
// `panel`. Only `count` of the outputs exist.
template <int P, int G, bool all>
KERNEL void FinishLanes(const Product& args, int64_t block, int64_t output,
                        int64_t count, const Ints* panel) {
  constexpr int kHeight = kLanes / G;
  // These are copies, because each result might change memory behind a pointer.
  const int64_t stride = args.stride, rows = args.x.rows - block * kHeight;
  const float* const row_scales = args.x.scales + block * kHeight;
  const int32_t* const offsets = args.x.offsets + block * P * kHeight;
  float* const result = args.result + block * kHeight * stride + output;
  Floats scales = {}, bias = {};
  memcpy(&scales, args.scales + output, all ? kBytes : count * 4);
  memcpy(&bias, args.bias + output, all ? kBytes : count * 4);
  for (int part = 0; part < Parts(G); ++part) {
    Ints high[kFours], low[kFours] = {};
    Turn(panel + part * kPart, high);
    if constexpr (P == 2) Turn(panel + (Parts(G) + part) * kPart, low);
    UNROLL for (int four = 0; four < kFours; ++four) {
      const int i = RowAt(G, part, four);
      if (i < 0 || i >= rows) continue;
      Floats total = __builtin_convertvector(high[four] - offsets[i], Floats);
      if constexpr (P == 2) {
        const Ints rest = low[four] - offsets[kHeight + i];
        total = total * kBase + __builtin_convertvector(rest, Floats);
      }
      total = total * (row_scales[i] * scales) + bias;
      memcpy(result + i * stride, &total, all ? kBytes : count * 4);
    }
  }
}

// Computes the results of a block for `count` outputs from `output` on.
template <int P, int G>
KERNEL void Finish(const Product& args, int64_t block, int64_t output,
                   int64_t count, const Ints* panel) {
  int64_t n = 0;
  for (; n + kLanes <= count; n += kLanes, panel += kFours) {
    FinishLanes<P, G, true>(args, block, output + n, kLanes, panel);
  }
  if (n < count) {
    FinishLanes<P, G, false>(args, block, output + n, count - n, panel);
  }
}

// Computes B planes of blocks from `block` on times `count` outputs.
template <int B, int G>
KERNEL void Panel(const Product& args, int64_t block, const int8_t* weights,
                  int64_t output, int64_t count) {
  constexpr int kTogether = B == 1 ? 8 : B == 2 ? kSums / 2 : 4;
  constexpr int kIntegers = Parts(G) * kPart;
  Ints panel[B * kIntegers];
  const int64_t first = block / args.x.planes * (kLanes / G);
  int64_t height = B * (kLanes / G) / args.x.planes;
  if (height > args.x.rows - first) height = args.x.rows - first;
  float* const result = args.result + first * args.stride + output;
  for (int64_t i = 0; i < count; i += kTogether) {
    // With many rows, writes would wait for memory without a prefetch. With few
    // rows, it would compete with the weights.
    if (height >= kLanes) {
      for (int64_t row = 0; row < height; ++row) {
        __builtin_prefetch(result + row * args.stride + i, 1);
      }
    }
    Tile<B, kTogether, G>(args.x, block, weights + i * args.x.size,
                          args.x.size, panel + i / 4);
  }
  if (args.x.planes == 1) {
    for (int b = 0; b < B; ++b) {
      Finish<1, G>(args, block + b, output, count, panel + b * kIntegers);
    }
  } else if constexpr (B % 2 == 0) {
    for (int b = 0; b < B; b += 2) {
      Finish<2, G>(args, (block + b) / 2, output, count,
                   panel + b * kIntegers);
    }
  }
}

// Computes all rows times `count` outputs.
template <int G>
KERNEL void AllRows(const Product& args, const int8_t* weights, int64_t output,
                    int64_t count) {
  constexpr int kHeight = kLanes / G;
  const int64_t blocks =
      (args.x.rows + kHeight - 1) / kHeight * args.x.planes;
  int64_t block = 0;
  for (; block + kGroup <= blocks; block += kGroup) {
    Panel<kGroup, G>(args, block, weights, output, count);
  }
  const int64_t rest = blocks - block;
  if (rest == 1) Panel<1, G>(args, block, weights, output, count);
  if constexpr (kGroup > 2) {
    if (rest == 2) Panel<2, G>(args, block, weights, output, count);
    if (rest == 3) Panel<3, G>(args, block, weights, output, count);
  }
}

// Computes some outputs of all rows. Whole tiles of their weights are readable.
KERNEL void Outputs(const Product& args, const int8_t* weights, int64_t output,
                    int64_t count) {
  const int64_t lanes = LanesOf(args.x.rows);
  if (lanes == 1) AllRows<1>(args, weights, output, count);
  if (lanes == 2) AllRows<2>(args, weights, output, count);
  if (lanes == 4) AllRows<4>(args, weights, output, count);
  if (lanes == 8) AllRows<8>(args, weights, output, count);
  if constexpr (kLanes > 8) {
    if (lanes == kLanes) AllRows<kLanes>(args, weights, output, count);
  }
}

// Multiplies `count` numbers by silu of the gates.
KERNEL void Gate(const float* gates, float* to, int64_t count) {
  for (int64_t n = 0; n < count; n += kLanes) {
    const int64_t bytes = count - n < kLanes ? (count - n) * 4 : kBytes;
    Floats gate = {}, x = {};
    memcpy(&gate, gates + n, bytes);
    memcpy(&x, to + n, bytes);
    // Exp takes negative numbers only.
    const Floats small = Exp(gate > 0 ? -gate : gate);
    x = x * (gate > 0 ? gate : gate * small) / (1 + small);
    memcpy(to + n, &x, bytes);
  }
}

}  // namespace

PackedSizes PACKED_SIZES(int64_t rows, int64_t size, int64_t planes) {
  const int64_t lanes = LanesOf(rows), height = kLanes / lanes;
  const int64_t blocks = (rows + height - 1) / height;
  return {blocks, height, blocks * planes * Steps(size, lanes) * kBytes};
}

void PACK_ROWS(const float* x, const PackedRows& packed, int64_t begin,
               int64_t end) {
  for (int64_t block = begin; block < end; ++block) {
    if (packed.planes == 1) {
      PackBlock<1>(x, packed, block);
    } else {
      PackBlock<2>(x, packed, block);
    }
  }
}

void MULTIPLY(const Product& args, int64_t begin, int64_t end) {
  const int64_t size = args.x.size;
  int64_t last = end * kOutputs;
  if (last > args.outputs) last = args.outputs;
  const int64_t whole = last - last % kOutputs;
  for (int64_t output = begin * kOutputs; output < whole; output += kPanel) {
    const int64_t count = whole - output < kPanel ? whole - output : kPanel;
    Outputs(args, args.weights + output * size, output, count);
  }
  if (whole == last) return;
  // The memory after the last weights is not readable.
  static thread_local Kept<int8_t> kept;
  int8_t* const weights = kept.OfSize(kOutputs * size);
  memset(weights, 0, kOutputs * size);
  memcpy(weights, args.weights + whole * size, (last - whole) * size);
  Outputs(args, weights, whole, last - whole);
}

void MULTIPLY_GATED(const Product& gate, const Product& up, int64_t begin,
                    int64_t end) {
  static thread_local Kept<float> kept;
  float* const gates = kept.OfSize(up.x.rows * kPanel);
  int64_t last = end * kOutputs;
  if (last > up.outputs) last = up.outputs;
  for (int64_t output = begin * kOutputs; output < last; output += kPanel) {
    const int64_t count = last - output < kPanel ? last - output : kPanel;
    Product gate_part = Part(gate, output, count);
    gate_part.result = gates;
    gate_part.stride = kPanel;
    const Product up_part = Part(up, output, count);
    MULTIPLY(gate_part, 0, kPanel / kOutputs);
    MULTIPLY(up_part, 0, kPanel / kOutputs);
    for (int64_t row = 0; row < up.x.rows; ++row) {
      Gate(gates + row * kPanel, up_part.result + row * up.stride, count);
    }
  }
}

}  // namespace saxml_kernels

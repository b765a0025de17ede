// Compares each variant that this processor can run with simple loops.

#include "saxml_ext/engine/kernels/attention.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "saxml_ext/engine/kernels/dispatch.h"

namespace saxml_kernels {
namespace {

struct Shape {
  int64_t slots, heads, beams, head_dim, width;
  std::vector<int64_t> segments;
  int64_t suffixes;
  int64_t group = 1;
  int64_t spare = 0;  // Rows of each step that belong to no beam.

  int64_t rows() const { return beams * group; }
  // The slots of the blocks. One of them is not read.
  int64_t held() const { return slots + 1; }
};

// A block with its memory, and the float values of its elements.
struct TestBlock {
  std::vector<uint8_t> keys, values;
  std::vector<float> key_scales, value_scales;
  std::vector<float> exact_keys, exact_values;
  Block block;
};

// `count` numbers of a type. Each group of `shared` numbers has a scale.
void Fill(std::mt19937& rng, Type type, int64_t count,
          std::vector<uint8_t>& bytes, std::vector<float>& exact) {
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) {
    float x = normal(rng);
    if (type == Type::kFloat32) {
      bytes.resize(bytes.size() + 4);
      memcpy(&bytes[4 * i], &x, 4);
    } else if (type == Type::kBFloat16) {
      uint32_t bits;
      memcpy(&bits, &x, 4);
      bits &= 0xFFFF0000;
      memcpy(&x, &bits, 4);
      bytes.push_back(bits >> 16 & 0xFF);
      bytes.push_back(bits >> 24);
    } else {
      const int code = std::lrint(40 * x);
      const int8_t clipped = code > 127 ? 127 : code < -127 ? -127 : code;
      bytes.push_back(static_cast<uint8_t>(clipped));
      x = clipped;
    }
    exact.push_back(x);
  }
}

TestBlock MakeBlock(std::mt19937& rng, Type type, const Shape& shape,
                    int64_t length, bool suffix) {
  TestBlock b;
  const int64_t rows = shape.held() * shape.heads * length;
  Fill(rng, type, rows * shape.head_dim, b.keys, b.exact_keys);
  Fill(rng, type, rows * shape.head_dim, b.values, b.exact_values);
  if (type == Type::kInt8) {
    std::uniform_real_distribution<float> scale(0.01, 0.04);
    for (int64_t i = 0; i < rows; ++i) {
      b.key_scales.push_back(scale(rng));
      b.value_scales.push_back(scale(rng));
    }
    for (int64_t place = 0; place < shape.held() * shape.heads; ++place) {
      for (int64_t t = 0; t < length; ++t) {
        for (int64_t h = 0; h < shape.head_dim; ++h) {
          const int64_t row = (place * length + t) * shape.head_dim + h;
          const int64_t column = (place * shape.head_dim + h) * length + t;
          b.exact_values[row] *= b.value_scales[place * length + t];
          b.exact_keys[suffix ? row : column] *=
              b.key_scales[place * length + t];
        }
      }
    }
  }
  b.block = {b.keys.data(), b.values.data(),
             type == Type::kInt8 ? b.key_scales.data() : nullptr,
             type == Type::kInt8 ? b.value_scales.data() : nullptr, length,
             suffix ? shape.width : 0};
  return b;
}

// Computes attention of one query over a list of keys and values.
struct Sums {
  std::vector<double> scores;
  std::vector<std::vector<double>> values;

  std::vector<double> Mixed(int64_t width) const {
    std::vector<double> mixed(width, 0);
    double peak = -INFINITY, total = 0;
    for (double score : scores) peak = std::fmax(peak, score);
    for (double score : scores) total += std::exp(score - peak);
    for (size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - peak) / total;
      for (int64_t h = 0; h < width; ++h) mixed[h] += weight * values[i][h];
    }
    return mixed;
  }
};

int failures = 0;

void TestShape(const Shape& shape, Type type, unsigned seed) {
  std::mt19937 rng(seed);
  const int64_t count =
      shape.slots * shape.heads * shape.rows() * shape.head_dim;
  std::vector<float> queries;
  std::vector<uint8_t> unused;
  Fill(rng, Type::kFloat32, count, unused, queries);

  std::vector<TestBlock> made;
  int64_t most = 0;
  for (int64_t length : shape.segments) {
    made.push_back(MakeBlock(rng, type, shape, length, false));
    most += length;
  }
  std::vector<std::vector<int16_t>> ancestry(shape.suffixes);
  for (int64_t i = 0; i < shape.suffixes; ++i) {
    const int64_t length = shape.width * (shape.beams + shape.spare);
    made.push_back(MakeBlock(rng, type, shape, length, true));
    for (int64_t slot = 0; slot < shape.slots; ++slot) {
      for (int64_t k = 0; k < shape.beams; ++k) {
        for (int64_t w = 0; w < shape.width; ++w) {
          // Some slots begin later. All beams share some steps.
          const int64_t step = i * shape.width + w;
          const bool begun = step >= slot * 3;
          const int row =
              step % 3 == 0 ? step % shape.beams : rng() % shape.beams;
          // A single beam may lack a step, although no search causes this.
          const bool lacks = step % 7 == 5 && k == 1;
          ancestry[i].push_back(begun && !lacks ? row : -1);
        }
      }
    }
  }
  std::vector<int32_t> reach;
  for (int64_t slot = 0; slot < shape.slots; ++slot) {
    reach.push_back(slot == 1 ? -1 : slot == 2 ? 0 : rng() % (most + 1));
  }
  if (shape.slots > 3) reach[3] = most;
  std::vector<int32_t> places;  // In the reverse order.
  for (int64_t slot = 0; slot < shape.slots; ++slot) {
    places.push_back(shape.held() - 1 - slot);
  }

  std::vector<Block> blocks;
  for (const TestBlock& b : made) blocks.push_back(b.block);
  // Rows above 127 require more than 8 bits.
  const bool wide = shape.beams > 8;
  std::vector<std::vector<int8_t>> narrow(shape.suffixes);
  std::vector<const void*> rows;
  for (int64_t i = 0; i < shape.suffixes; ++i) {
    narrow[i].assign(ancestry[i].begin(), ancestry[i].end());
    const void* const wider = ancestry[i].data();
    rows.push_back(wide ? wider : narrow[i].data());
  }
  const int64_t segments = shape.segments.size();
  std::vector<float> mixed(count);
  const Attention args = {type,
                          shape.slots,
                          shape.heads,
                          shape.beams,
                          shape.group,
                          shape.head_dim,
                          queries.data(),
                          mixed.data(),
                          reach.data(),
                          places.data(),
                          blocks.data(),
                          segments,
                          blocks.data() + segments,
                          shape.suffixes,
                          wide,
                          rows.data()};

  // The expected result.
  std::vector<double> expected;
  for (int64_t slot = 0; slot < shape.slots; ++slot) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t first = (slot * shape.heads + head) * shape.rows();
      const int64_t place = places[slot] * shape.heads + head;
      for (int64_t r = 0; r < shape.rows(); ++r) {
        const int64_t k = r / shape.group;
        const float* query = &queries[(first + r) * shape.head_dim];
        Sums sums;
        const auto see = [&](const TestBlock& b, int64_t t, bool suffix) {
          const int64_t length = b.block.length;
          double score = 0;
          std::vector<double> value;
          for (int64_t h = 0; h < shape.head_dim; ++h) {
            const int64_t row = (place * length + t) * shape.head_dim + h;
            const int64_t column = (place * shape.head_dim + h) * length + t;
            score += query[h] * b.exact_keys[suffix ? row : column];
            value.push_back(b.exact_values[row]);
          }
          sums.scores.push_back(score / std::sqrt(shape.head_dim));
          sums.values.push_back(value);
        };
        int64_t begin = 0;
        for (int64_t i = 0; i < segments; ++i) {
          const int64_t length = shape.segments[i];
          for (int64_t t = 0; t < length && begin + t < reach[slot]; ++t) {
            see(made[i], t, false);
          }
          begin += length;
        }
        for (int64_t i = 0; i < shape.suffixes && reach[slot] >= 0; ++i) {
          for (int64_t w = 0; w < shape.width; ++w) {
            const int16_t row =
                ancestry[i][(slot * shape.beams + k) * shape.width + w];
            if (row < 0) continue;
            see(made[segments + i], w * (shape.beams + shape.spare) + row, true);
          }
        }
        for (double x : sums.Mixed(shape.head_dim)) expected.push_back(x);
      }
    }
  }

  for (const Variant& variant : Variants()) {
    // The parts cut slots in two.
    mixed.assign(count, NAN);
    const int64_t places = shape.slots * shape.heads;
    for (int64_t begin = 0; begin < places; begin += 3) {
      variant.attend(args, begin, begin + 3 < places ? begin + 3 : places);
    }
    double worst = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double error = std::fabs(mixed[i] - expected[i]);
      if (!(error <= worst)) worst = error;
    }
    const bool good = worst < 1e-5;
    if (!good) ++failures;
    printf("%s %s: %ld slots, %ld heads of %ld, %ld beams: off by %.1e\n",
           good ? "ok" : "FAILED", variant.name, (long)shape.slots,
           (long)shape.heads, (long)shape.head_dim, (long)shape.beams, worst);
  }
}

int Main() {
  const std::vector<Shape> shapes = {
      {5, 4, 4, 64, 16, {64, 64, 128}, 4},
      {4, 2, 1, 256, 16, {192}, 3},
      {4, 3, 1, 64, 24, {192}, 1, 3, 3},
      // No size is a multiple of a vector.
      {5, 3, 3, 10, 5, {7, 33, 61}, 2},
      {4, 1, 5, 24, 4, {40, 3}, 3},
      {4, 2, 6, 16, 8, {16, 100}, 2},
      {4, 5, 2, 40, 16, {1, 2, 250}, 2},
      {4, 1, 8, 7, 3, {5}, 1},
      // Wide beams: whole bundles of groups, and a remainder.
      {4, 5, 30, 64, 4, {7, 130}, 2},
      {2, 2, 150, 16, 3, {150}, 2},
      {4, 1, 41, 80, 8, {40, 300}, 1},
      // Queries that share keys: those of one beam, and tiles across two beams.
      {4, 2, 1, 64, 16, {64, 64}, 3, 4},
      {4, 2, 3, 24, 5, {33}, 2, 2},
      {4, 1, 4, 64, 8, {130}, 2, 3},
      {4, 2, 4, 64, 4, {7, 130}, 2, 8},
  };
  unsigned seed = 1;
  for (const Shape& shape : shapes) {
    for (Type type : {Type::kFloat32, Type::kBFloat16, Type::kInt8}) {
      TestShape(shape, type, seed++);
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace saxml_kernels

int main() { return saxml_kernels::Main(); }

// Attention of some queries of one slot: visible keys, scores and values. For
// translation units that are compiled for one kind of processor.

#ifndef SAXML_EXT_ENGINE_KERNELS_ATTENTION_GROUP_H_
#define SAXML_EXT_ENGINE_KERNELS_ATTENTION_GROUP_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "saxml_ext/engine/kernels/array.h"
#include "saxml_ext/engine/kernels/attention.h"
#include "saxml_ext/engine/kernels/attention_panels.h"
#include "saxml_ext/engine/kernels/attention_tiles.h"
#include "saxml_ext/engine/kernels/rows.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// The total number of columns of all blocks.
int64_t Columns(const Block* blocks, int64_t count) {
  int64_t columns = 0;
  for (int64_t i = 0; i < count; ++i) columns += blocks[i].length;
  return columns;
}

// The total number of decode steps of all blocks.
int64_t Steps(const Block* blocks, int64_t count) {
  int64_t steps = 0;
  for (int64_t i = 0; i < count; ++i) steps += blocks[i].steps;
  return steps;
}

// The number of elements that tiles may write after the end of a row.
constexpr int64_t kSlack = (kSums + 1) * kLanes;

// Q queries of some heads of one slot, with keys and values of type T.
template <int Q, typename T>
class Group {
 public:
  // At most `heads` heads are processed together.
  Group(const Attention& args, int64_t heads)
      : args_(args),
        width_(args.head_dim),
        most_steps_(Steps(args.suffixes, args.num_suffixes)),
        stride_(Columns(args.segments, args.num_segments) + most_steps_ +
                kSlack),
        weights_(heads * Q * stride_),
        queries_(heads * Q * width_),
        mixed_(heads * Q * width_),
        segments_(args.num_segments),
        shared_(most_steps_ + kStepsAhead),
        own_((most_steps_ + kStepsAhead) * Q) {}

  // Computes queries `first` to first + Q of heads `begin` to `end` of `slot`.
  void Attend(int64_t slot, int64_t begin, int64_t end, int64_t first) {
    if (!Begin(slot, begin, end, first)) return;
    for (int64_t i = 0; i < num_segments_; ++i) {
      for (int64_t head = begin; head < end; ++head) ScoreSegment(i, head);
    }
    for (int64_t head = begin; head < end; ++head) Weigh(head);
    for (int64_t i = 0; i < num_segments_; ++i) {
      for (int64_t head = begin; head < end; ++head) MixSegment(i, head);
    }
    for (int64_t head = begin; head < end; ++head) MixSteps(head);
  }

  // The same computation in parts, for callers that process the prompt for many
  // beams together, panel by panel. This function lists the keys to read and
  // returns false if there are none. If `apart` is true, results are
  // accumulated separately, because other groups also compute some of these
  // queries. The results are equal, but each group adds to its own.
  bool Begin(int64_t slot, int64_t begin, int64_t end, int64_t first,
             bool apart = false) {
    slot_ = slot;
    apart_ = apart;
    begin_ = begin;
    end_ = end;
    first_ = first;
    List();
    for (int64_t head = begin; head < end; ++head) {
      const float scale = 1 / std::sqrt(static_cast<float>(width_));
      const float* queries = args_.queries + QueryAt(head);
      for (int64_t i = 0; i < Q * width_; ++i) {
        Queries(head)[i] = queries[i] * scale;
      }
      memset(args_.mixed + QueryAt(head), 0, Q * width_ * sizeof(float));
      if (apart) memset(Mixed(head), 0, Q * width_ * sizeof(float));
    }
    return prompt_ + num_shared_ + num_own_ > 0;
  }

  // Makes a panel of each part of the prompt's keys, and calls `meet` with the
  // panel and its first column.
  template <typename Meet>
  void EachPanelOfKeys(int64_t head, float* panel, Meet meet) const {
    for (int64_t i = 0; i < num_segments_; ++i) {
      const Segment& part = segments_[i];
      const Block& block = *part.block;
      const float* scales = Scales(block.key_scales, block, head);
      for (int64_t t = 0; t < part.count; t += kPanelWidth) {
        const int64_t left = part.count - t;
        Pack(Keys(block, head) + t, block.length, width_,
             left < kPanelWidth ? left : kPanelWidth, nullptr,
             scales == nullptr ? nullptr : scales + t, panel);
        meet(panel, part.at + t);
      }
    }
  }

  // Does the same for the values. `meet` also gets the number of columns, and
  // the start of the panel in the heads.
  template <typename Meet>
  void EachPanelOfValues(int64_t head, float* panel, Meet meet) const {
    for (int64_t i = 0; i < num_segments_; ++i) {
      const Segment& part = segments_[i];
      const Block& block = *part.block;
      const float* scales = Scales(block.value_scales, block, head);
      for (int64_t t = 0; t < part.count; t += kPanelRows) {
        const int64_t left = part.count - t;
        const int64_t rows = left < kPanelRows ? left : kPanelRows;
        for (int64_t h = 0; h < width_; h += kPanelWidth) {
          Pack(Values(block, head) + t * width_ + h, width_, rows,
               width_ - h < kPanelWidth ? width_ - h : kPanelWidth,
               scales == nullptr ? nullptr : scales + t, nullptr, panel);
          meet(panel, part.at + t, rows, h);
        }
      }
    }
  }

  // Computes the scores of a panel of keys.
  void ScorePanel(int64_t head, const float* panel, int64_t at) {
    ScoreTile<Q>(Queries(head), width_, panel, Weights(head) + at, stride_);
  }

  // Computes the scores of the steps, and the weights of all columns.
  void Weigh(int64_t head) {
    const int64_t count = prompt_ + num_shared_ + num_own_;
    ScoreSteps(head);
    for (int q = 0; q < Q; ++q) Softmax(Weights(head) + q * stride_, count);
  }

  // Adds a panel of values.
  void MixPanel(int64_t head, const float* panel, int64_t at, int64_t rows,
                int64_t from) {
    MixRows<Q>(Weights(head) + at, stride_, panel, rows,
               Mixed(head) + from, width_, width_ - from);
  }

  // Adds the steps' values, which come last.
  void MixSteps(int64_t head) {
    const int64_t offset = StepOffset(head);
    float* weights = Weights(head) + prompt_;
    for (int64_t t = 0; t < num_shared_; ++t) {
      if (shared_[t].value_scale == nullptr) break;
      const float scale = shared_[t].value_scale[ScaleOffset(head)];
      for (int q = 0; q < Q; ++q) weights[q * stride_ + t] *= scale;
    }
    const Step* const shared = shared_ + 0;
    AddAllRows<Fetching::kRows, Q>(
        weights, stride_, num_shared_,
        [=](int64_t t) { return shared[t].value + offset; },
        [=](int64_t t) { return shared[t + kStepsAhead].value + offset; },
        width_, Mixed(head), width_);
    weights += num_shared_;
    for (int64_t i = 0; i < num_own_ * Q; ++i) {
      if (own_[i].value_scale == nullptr) break;
      weights[i % Q * stride_ + i / Q] *=
          own_[i].value_scale[ScaleOffset(head)];
    }
    Mix<Q>(
        weights, stride_, width_, num_own_,
        [=](int64_t t, int q) { return own_[t * Q + q].value + offset; },
        [=](int64_t t) { return own_[(t + kStepsAhead) * Q].value + offset; },
        Mixed(head));
    if (!apart_) return;
    memcpy(args_.mixed + QueryAt(head), mixed_ + (head - begin_) * Q * width_,
           Q * width_ * sizeof(float));
  }

 private:
  // A block of the prompt, or its first part.
  struct Segment {
    const Block* block;
    int64_t at;     // The first column, in the prompt.
    int64_t count;  // The number of columns.
  };

  // The key and value of a decode step, for head begin_.
  struct Step {
    const T* key;
    const T* value;
    const float* key_scale;  // nullptr stands for 1.
    const float* value_scale;
    bool seen;
  };

  // The position of a head of the slot in the blocks.
  int64_t Place(int64_t head) const {
    return args_.places[slot_] * args_.heads + head;
  }
  int64_t QueryAt(int64_t head) const {
    return ((slot_ * args_.heads + head) * args_.rows() + first_) * width_;
  }
  float* Mixed(int64_t head) {
    return apart_ ? mixed_ + (head - begin_) * Q * width_
                  : args_.mixed + QueryAt(head);
  }
  float* Queries(int64_t head) {
    return queries_ + (head - begin_) * Q * width_;
  }
  float* Weights(int64_t head) {
    return weights_ + (head - begin_) * Q * stride_;
  }
  const T* Keys(const Block& block, int64_t head) const {
    return static_cast<const T*>(block.keys) +
           Place(head) * width_ * block.length;
  }
  const T* Values(const Block& block, int64_t head) const {
    return static_cast<const T*>(block.values) +
           Place(head) * width_ * block.length;
  }
  const float* Scales(const float* scales, const Block& block,
                      int64_t head) const {
    return scales == nullptr ? nullptr : scales + Place(head) * block.length;
  }

  // Finds the keys to read.
  void List() {
    num_segments_ = num_shared_ = num_own_ = prompt_ = 0;
    const int64_t reach = args_.reach[slot_];
    if (reach < 0) return;
    for (int64_t i = 0; i < args_.num_segments && prompt_ < reach; ++i) {
      const Block& block = args_.segments[i];
      const int64_t left = reach - prompt_;
      const int64_t count = left < block.length ? left : block.length;
      segments_[num_segments_++] = {&block, prompt_, count};
      prompt_ += count;
    }
    for (int64_t i = 0; i < args_.num_suffixes; ++i) {
      if (args_.wide_ancestry) {
        ListSteps(args_.suffixes[i],
                  static_cast<const int16_t*>(args_.ancestry[i]));
      } else {
        ListSteps(args_.suffixes[i],
                  static_cast<const int8_t*>(args_.ancestry[i]));
      }
    }
    // The prefetch at the end reads this entry.
    for (int64_t i = 0; i < kStepsAhead; ++i) {
      if (num_shared_ > 0) shared_[num_shared_ + i] = shared_[0];
      if (num_own_ > 0) own_[(num_own_ + i) * Q] = own_[0];
    }
  }

  template <typename Row>
  void ListSteps(const Block& block, const Row* ancestry) {
    const int64_t steps = block.steps;
    const Row* pasts[Q];  // By query: those of its beam.
    for (int q = 0; q < Q; ++q) {
      const int64_t beam = (first_ + q) / args_.group;
      pasts[q] = ancestry + (slot_ * args_.beams + beam) * steps;
    }
    for (int64_t w = 0; w < steps; ++w) {
      bool seen = false, same = true;
      for (int q = 0; q < Q; ++q) {
        const Row row = pasts[q][w];
        seen |= row >= 0;
        same &= row == pasts[0][w];
      }
      if (!seen) continue;
      if (same) {
        shared_[num_shared_++] = StepAt(block, w, pasts[0][w]);
        continue;
      }
      for (int q = 0; q < Q; ++q) {
        own_[num_own_ * Q + q] = StepAt(block, w, pasts[q][w]);
      }
      ++num_own_;
    }
  }

  Step StepAt(const Block& block, int64_t w, int64_t row) const {
    const bool seen = row >= 0;
    const int64_t column = w * (block.length / block.steps) + (seen ? row : 0);
    const auto scale = [&](const float* scales) {
      return scales == nullptr ? nullptr
                               : Scales(scales, block, begin_) + column;
    };
    return {Keys(block, begin_) + column * width_,
            Values(block, begin_) + column * width_, scale(block.key_scales),
            scale(block.value_scales), seen};
  }

  void ScoreSegment(int64_t i, int64_t head) {
    const Segment& part = segments_[i];
    const Block& block = *part.block;
    const T* next = head + 1 < end_ ? Keys(block, head + 1)
                    : i + 1 < num_segments_
                        ? Keys(*segments_[i + 1].block, begin_)
                        : Values(*segments_[0].block, begin_);
    Score<Q>(Queries(head), width_, Keys(block, head),
             Scales(block.key_scales, block, head), block.length, part.count,
             next, Weights(head) + part.at, stride_);
  }

  void ScoreSteps(int64_t head) {
    const int64_t offset = StepOffset(head);
    float* scores = Weights(head) + prompt_;
    for (int64_t t = 0; t < num_shared_; ++t, ++scores) {
      FetchRow(shared_[t + kStepsAhead].key + offset);
      const T* keys[Q];
      for (int q = 0; q < Q; ++q) keys[q] = shared_[t].key + offset;
      ScoreRow<Q>(Queries(head), width_, keys, scores, stride_);
      for (int q = 0; q < Q; ++q) Finish(shared_[t], head, scores[q * stride_]);
    }
    for (int64_t t = 0; t < num_own_; ++t, ++scores) {
      FetchRow(own_[(t + kStepsAhead) * Q].key + offset);
      const T* keys[Q];
      for (int q = 0; q < Q; ++q) keys[q] = own_[t * Q + q].key + offset;
      ScoreRow<Q>(Queries(head), width_, keys, scores, stride_);
      for (int q = 0; q < Q; ++q) {
        Finish(own_[t * Q + q], head, scores[q * stride_]);
      }
    }
  }

  void Finish(const Step& step, int64_t head, float& score) const {
    if (!step.seen) {
      score = kMasked;
    } else if (step.key_scale != nullptr) {
      score *= step.key_scale[ScaleOffset(head)];
    }
  }

  void FetchRow(const T* row) const {
    for (int64_t i = 0; i < width_; i += 64 / sizeof(T)) Fetch<1>(row + i);
  }

  void MixSegment(int64_t i, int64_t head) {
    const Segment& part = segments_[i];
    const Block& block = *part.block;
    const T* next = head + 1 < end_ ? Values(block, head + 1)
                    : i + 1 < num_segments_
                        ? Values(*segments_[i + 1].block, begin_)
                        : Values(block, head);
    float* weights = Weights(head) + part.at;
    if (block.value_scales != nullptr) {
      const float* scales = Scales(block.value_scales, block, head);
      for (int q = 0; q < Q; ++q) {
        for (int64_t t = 0; t < part.count; ++t) {
          weights[q * stride_ + t] *= scales[t];
        }
      }
    }
    const T* values = Values(block, head);
    const int64_t width = width_, count = part.count;
    const int64_t distance = RowsAhead<T>(width, count);
    AddAllRows<Fetching::kLines, Q>(
        weights, stride_, count,
        [=](int64_t t) { return values + t * width; },
        [=](int64_t t) {
          return Ahead(values, next, count, width, t, distance);
        },
        width, Mixed(head), width);
  }

  // The distance between a step of head begin_ and that step of another head.
  int64_t StepOffset(int64_t head) const { return ScaleOffset(head) * width_; }
  int64_t ScaleOffset(int64_t head) const {
    return (head - begin_) * args_.suffixes[0].length;
  }

  // The distance of the prefetch, in steps.
  static constexpr int64_t kStepsAhead = 8;

  const Attention& args_;
  const int64_t width_;
  const int64_t most_steps_;
  const int64_t stride_;
  // By head: first scores, then weights, [Q, stride_]. They belong to the
  // prompt's columns, to the steps that all queries share, and to the other
  // steps.
  Array<float> weights_;
  Array<float> queries_;
  Array<float> mixed_;  // Separate results, if `apart`.
  Array<Segment> segments_;
  Array<Step> shared_;  // [num_shared_].
  Array<Step> own_;     // [num_own_, Q].

  int64_t slot_, begin_, end_, first_;
  bool apart_;
  int64_t num_segments_, num_shared_, num_own_;
  int64_t prompt_;  // Columns of the prompt.
};

}  // namespace
}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_ATTENTION_GROUP_H_

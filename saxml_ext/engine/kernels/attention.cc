// Compiled once for each kind of processor. ATTEND is the name of the function.

#include "saxml_ext/engine/kernels/attention.h"

#include <cstdint>

#include "saxml_ext/engine/kernels/array.h"
#include "saxml_ext/engine/kernels/attention_group.h"
#include "saxml_ext/engine/kernels/attention_panels.h"
#include "saxml_ext/engine/kernels/attention_tiles.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// The number of bytes to read from one place before the next, large enough for
// the processor to read ahead. An AMD EPYC reads 19 GB/s per core from places
// of 16 KiB, and 29 GB/s from places of 64 KiB.
constexpr int64_t kRun = 65536;

// The maximum number of groups of queries that use a panel of the prompt in
// turn.
constexpr int kBundle = 16;
// The minimum number of queries. With fewer, making the panels costs too much.
constexpr int64_t kWide = 16;
// The number of heads whose steps are listed together.
constexpr int64_t kWideHeads = 4;

// Calls `attend` with a slot and a range of at most `together` of its heads,
// until the heads `begin` to `end` of S * N are done.
template <typename Attend>
void EachSlot(const Attention& args, int64_t begin, int64_t end,
              int64_t together, Attend attend) {
  while (begin < end) {
    const int64_t slot = begin / args.heads, head = begin % args.heads;
    int64_t count = args.heads - head;
    if (count > end - begin) count = end - begin;
    if (count > together) count = together;
    attend(slot, head, head + count);
    begin += count;
  }
}

// Computes the queries from `first` on, Q at a time.
template <int Q, typename T>
void AttendBeams(const Attention& args, int64_t begin, int64_t end,
                 int64_t first, int64_t last) {
  const int64_t head_bytes =
      args.head_dim * args.suffixes[0].length * sizeof(T);
  int64_t together = kRun / head_bytes;
  if (together < 1) together = 1;
  if (together > args.heads) together = args.heads;
  Group<Q, T> group(args, together);
  EachSlot(args, begin, end, together,
           [&](int64_t slot, int64_t head, int64_t last_head) {
             for (int64_t row = first; row < last; row += Q) {
               group.Attend(slot, head, last_head, row);
             }
           });
}

// Groups of queries of one slot that share the panels of its prompt.
template <typename T>
class Bundle {
 public:
  using Queries = Group<kQueries, T>;

  Bundle(const Attention& args, int64_t heads)
      : panel_((args.head_dim > kPanelRows ? args.head_dim : kPanelRows) *
               kPanelWidth) {
    for (auto& group : groups_) group = new Queries(args, heads);
  }
  ~Bundle() {
    for (auto& group : groups_) delete group;
  }
  Bundle(const Bundle&) = delete;

  // Computes `count` groups of queries from `first` on, for some heads. The
  // last group may overlap the group before it.
  void Attend(int64_t slot, int64_t begin, int64_t end, int64_t first,
              int count, int64_t rows) {
    bool any = false;
    for (int g = 0; g < count; ++g) {
      const int64_t at = first + g * kQueries;
      const bool apart = at + kQueries > rows;
      any |= groups_[g]->Begin(slot, begin, end,
                               apart ? rows - kQueries : at, apart);
    }
    if (!any) return;
    for (int64_t head = begin; head < end; ++head) {
      groups_[0]->EachPanelOfKeys(
          head, panel_ + 0, [&](const float* panel, int64_t at) {
            for (int g = 0; g < count; ++g) {
              groups_[g]->ScorePanel(head, panel, at);
            }
          });
      for (int g = 0; g < count; ++g) groups_[g]->Weigh(head);
      groups_[0]->EachPanelOfValues(
          head, panel_ + 0,
          [&](const float* panel, int64_t at, int64_t rows, int64_t from) {
            for (int g = 0; g < count; ++g) {
              groups_[g]->MixPanel(head, panel, at, rows, from);
            }
          });
      for (int g = 0; g < count; ++g) groups_[g]->MixSteps(head);
    }
  }

 private:
  Queries* groups_[kBundle];
  Array<float> panel_;
};

// Computes all queries, a bundle of groups at a time.
template <typename T>
void AttendBundles(const Attention& args, int64_t begin, int64_t end) {
  const int64_t heads = args.heads < kWideHeads ? args.heads : kWideHeads;
  const int64_t groups = (args.rows() + kQueries - 1) / kQueries;
  Bundle<T> bundle(args, heads);
  EachSlot(args, begin, end, heads,
           [&](int64_t slot, int64_t head, int64_t last_head) {
             for (int64_t g = 0; g < groups; g += kBundle) {
               const int count = groups - g < kBundle ? groups - g : kBundle;
               bundle.Attend(slot, head, last_head, g * kQueries, count,
                             args.rows());
             }
           });
}

template <typename T>
void AttendHeads(const Attention& args, int64_t begin, int64_t end) {
  if (args.rows() >= kWide && args.head_dim % kLanes == 0) {
    return AttendBundles<T>(args, begin, end);
  }
  const int64_t rest = args.rows() % kQueries, whole = args.rows() - rest;
  if (whole > 0) AttendBeams<kQueries, T>(args, begin, end, 0, whole);
  if (rest == 1) AttendBeams<1, T>(args, begin, end, whole, args.rows());
  if (rest == 2) AttendBeams<2, T>(args, begin, end, whole, args.rows());
  if (rest == 3) AttendBeams<3, T>(args, begin, end, whole, args.rows());
}

}  // namespace

void ATTEND(const Attention& args, int64_t begin, int64_t end) {
  switch (args.type) {
    case Type::kFloat32:
      return AttendHeads<float>(args, begin, end);
    case Type::kBFloat16:
      return AttendHeads<BFloat16>(args, begin, end);
    case Type::kInt8:
      return AttendHeads<int8_t>(args, begin, end);
  }
}

}  // namespace saxml_kernels

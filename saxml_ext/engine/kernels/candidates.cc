// Compiled once for each kind of processor. SURVEY_ROWS and CHOOSE are the
// names of the functions.
//
// Only about 2 * K of the K * V continuations of K beams are needed. All logits
// have to be read anyway for the sums of their exponentials. That pass keeps
// the maximum of each 16 tokens. A continuation's sum rises with its logit,
// also after rounding. So these maxima limit the search to the few tokens that
// may beat the worst candidate so far.

#include "saxml_ext/engine/kernels/candidates.h"

#include <cstdint>
#include <cstring>

#include "saxml_ext/engine/kernels/array.h"
#include "saxml_ext/engine/kernels/normalizer.h"
#include "saxml_ext/engine/kernels/simd.h"

namespace saxml_kernels {
namespace {

// A strip has this number of vectors of logits, and its maxima are one vector.
// Each maximum is that of the tokens at the same position in the strip's
// vectors.
constexpr int64_t kStrip = kTokensOfMaximum * kLanes;
// The number of vectors of maxima that are skipped together.
constexpr int64_t kTogether = 4;

// Returns the logits at `from`. Only `count` exist; the others are excluded.
KERNEL Floats LoadSome(const float* from, int64_t count) {
  if (count >= kLanes) return Load(from);
  Floats some = All(kBarred);
  if (count > 0) memcpy(&some, from, count * sizeof(float));
  return some;
}

const int32_t* BarredIn(const Candidates& args, int64_t slot) {
  return args.barred + slot * args.most_barred;
}

// Returns the largest logit of the tokens of a maximum, except excluded ones.
float MaximumAt(const Candidates& args, const float* logits,
                const int32_t* barred, int64_t place) {
  float maximum = kBarred;
  int64_t token = place / kLanes * kStrip + place % kLanes;
  for (int i = 0; i < kTokensOfMaximum; ++i, token += kLanes) {
    if (token >= args.vocabulary) break;
    if (IsAmong(barred, args.most_barred, token)) continue;
    if (logits[token] > maximum) maximum = logits[token];
  }
  return maximum;
}

void Survey(const Candidates& args, int64_t row) {
  const float* logits = args.logits + row * args.vocabulary;
  float* maxima = args.maxima + row * MaximaOf(args.vocabulary);
  Floats peaks = All(kBarred);
  float* next = maxima;
  for (int64_t i = 0; i < args.vocabulary; i += kStrip, next += kLanes) {
    Floats largest = All(kBarred);
    if (i + kStrip <= args.vocabulary) {
      for (int j = 0; j < kTokensOfMaximum; ++j) {
        largest = Max(largest, Load(logits + i + j * kLanes));
      }
    } else {
      for (int64_t at = i; at < args.vocabulary; at += kLanes) {
        largest = Max(largest, LoadSome(logits + at, args.vocabulary - at));
      }
    }
    Store(next, largest);
    peaks = Max(peaks, largest);
  }
  // The padding allows several vectors to be skipped at a time.
  for (float* end = maxima + MaximaOf(args.vocabulary); next < end; ++next) {
    *next = kBarred;
  }
  args.peaks[row] = MaxOf(peaks);
  args.log_totals[row] = LogTotal(logits, args.vocabulary, args.peaks[row]);
  const int32_t* barred = BarredIn(args, row / args.rows_per_slot);
  for (int64_t i = 0; i < args.most_barred; ++i) {
    const int64_t token = barred[i];
    if (token < 0 || token >= args.vocabulary) continue;
    const int64_t place = token / kStrip * kLanes + token % kLanes;
    maxima[place] = MaximumAt(args, logits, barred, place);
  }
}

struct Candidate {
  float sum, log_prob, logit;
  int32_t row, token;

  bool Beats(const Candidate& other) const {
    if (sum != other.sum) return sum > other.sum;
    if (row != other.row) return row < other.row;
    if (logit != other.logit) return logit > other.logit;
    return token < other.token;
  }
};

// The best candidates so far, as a heap with the worst one first.
class Heap {
 public:
  explicit Heap(int64_t most) : most_(most), items_(most) {}

  // Returns true if a sum may belong to the heap.
  bool Wants(float sum) const { return count_ < most_ || sum >= items_[0].sum; }

  void Add(const Candidate& item) {
    if (count_ < most_) {
      int64_t place = count_++;
      for (; place > 0 && items_[(place - 1) / 2].Beats(item);
           place = (place - 1) / 2) {
        items_[place] = items_[(place - 1) / 2];
      }
      items_[place] = item;
    } else if (item.Beats(items_[0])) {
      Sink(item);
    }
  }

  // Removes the worst.
  Candidate Pop() {
    const Candidate worst = items_[0];
    --count_;
    if (count_ > 0) Sink(Candidate(items_[count_]));
    return worst;
  }

  int64_t count() const { return count_; }

 private:
  // Replaces the worst by an item.
  void Sink(const Candidate& item) {
    int64_t place = 0;
    for (int64_t child = 1; child < count_; child = 2 * place + 1) {
      if (child + 1 < count_ && items_[child].Beats(items_[child + 1])) ++child;
      if (!item.Beats(items_[child])) break;
      items_[place] = items_[child];
      place = child;
    }
    items_[place] = item;
  }

  const int64_t most_;
  int64_t count_ = 0;
  Array<Candidate> items_;
};

// Adds the best continuations of a row to the heap.
class Row {
 public:
  Row(const Candidates& args, int64_t slot, int64_t row)
      : args_(args),
        barred_(BarredIn(args, slot)),
        row_(row),
        at_(slot * args.rows_per_slot + row),
        logits_(args.logits + at_ * args.vocabulary),
        peak_(args.peaks[at_]),
        log_total_(args.log_totals[at_]),
        score_(args.scores[at_]) {}

  void AddTo(Heap& heap) const {
    const int64_t width = MaximaOf(args_.vocabulary);
    const float* maxima = args_.maxima + at_ * width;
    int64_t next;
    for (int64_t begin = 0; begin < width; begin = next) {
      next = begin + kTogether * kLanes < width ? begin + kTogether * kLanes
                                                : width;
      Floats largest = Load(maxima + begin);
      for (int64_t i = begin + kLanes; i < next; i += kLanes) {
        largest = Max(largest, Load(maxima + i));
      }
      if (!heap.Wants(Sum(LogProb(MaxOf(largest))))) continue;
      for (int64_t place = begin; place < next; ++place) {
        if (heap.Wants(Sum(LogProb(maxima[place])))) AddPlace(place, heap);
      }
    }
  }

 private:
  float LogProb(float logit) const {
    const float found = (logit - peak_) - log_total_;
    return found >= kBarred ? found : kBarred;  // NaN has no order.
  }
  float Sum(float log_prob) const {
    const float found = log_prob + score_;
    return found >= kBarred ? found : kBarred;
  }

  // Adds the tokens of a maximum.
  void AddPlace(int64_t place, Heap& heap) const {
    int64_t token = place / kLanes * kStrip + place % kLanes;
    for (int i = 0; i < kTokensOfMaximum; ++i, token += kLanes) {
      if (token >= args_.vocabulary) break;
      const bool out = IsAmong(barred_, args_.most_barred, token);
      const float logit = out ? kBarred : logits_[token];
      const float log_prob = LogProb(logit), sum = Sum(log_prob);
      if (!heap.Wants(sum)) continue;
      heap.Add({sum, log_prob, logit, static_cast<int32_t>(row_),
                static_cast<int32_t>(token)});
    }
  }

  const Candidates& args_;
  const int32_t* const barred_;
  const int64_t row_, at_;
  const float* const logits_;
  const float peak_, log_total_, score_;
};

void ChooseInSlot(const Candidates& args, int64_t slot) {
  Heap heap(args.count);
  int64_t active = args.active[slot];
  if (active > args.rows_per_slot) active = args.rows_per_slot;
  for (int64_t row = 0; row < active; ++row) Row(args, slot, row).AddTo(heap);
  for (int64_t i = args.count - 1; i >= 0; --i) {
    const bool found = i < heap.count();
    const Candidate item = found ? heap.Pop() : Candidate{kBarred, kBarred, kBarred, 0, 0};
    const int64_t at = slot * args.count + i;
    args.sums[at] = item.sum;
    args.log_probs[at] = item.log_prob;
    args.rows[at] = item.row;
    args.tokens[at] = item.token;
  }
}

}  // namespace

void SURVEY_ROWS(const Candidates& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    // The other rows are not used.
    const int64_t slot = row / args.rows_per_slot;
    if (row % args.rows_per_slot < args.active[slot]) {
      Survey(args, row);
    } else {
      args.peaks[row] = args.log_totals[row] = 0;
    }
  }
}

void CHOOSE(const Candidates& args, int64_t begin, int64_t end) {
  for (int64_t slot = begin; slot < end; ++slot) ChooseInSlot(args, slot);
}

}  // namespace saxml_kernels

// The likeliest continuations of a group of beams.

#ifndef SAXML_EXT_ENGINE_KERNELS_CANDIDATES_H_
#define SAXML_EXT_ENGINE_KERNELS_CANDIDATES_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: S slots, R rows of each, V tokens, E tokens that may be barred, C
// candidates that are asked for.
struct Candidates {
  int64_t slots, rows_per_slot, vocabulary, count;
  const float* logits;    // [S, R, V].
  const float* scores;    // [S, R]: of what the rows have so far.
  const int32_t* barred;  // [S, E]; below 0: none.
  int64_t most_barred;    // E.
  const int32_t* active;  // [S]: so many rows of a slot are continued.
  float* peaks;           // [S, R]: the largest logit, barred or not.
  float* log_totals;      // [S, R]: log of the sum of exp(logit - peak).
  float* maxima;          // [S, R, MaximaOf(V)]; scratch.
  // [S, C], the best first. Of equal sums the lower row comes first, of one row
  // the larger logit, of equal logits the lower token.
  float* sums;  // Score of the row and log-probability of the token.
  float* log_probs;
  int32_t* rows;
  int32_t* tokens;
};

// Tokens whose largest logit is kept, to look at them together later.
constexpr int64_t kTokensOfMaximum = 16;

// Maxima of a row: those of whole strips of kTokensOfMaximum vectors, of 16
// numbers at most.
constexpr int64_t MaximaOf(int64_t vocabulary) {
  return (vocabulary + kTokensOfMaximum * 16 - 1) / (kTokensOfMaximum * 16) *
         16;
}

// Finds peaks, totals and maxima of the rows `begin` to `end` of S * R.
using SurveyRowsFunction = void(const Candidates& args, int64_t begin,
                                int64_t end);
// Chooses the candidates of the slots `begin` to `end`, once all their rows are
// surveyed.
using ChooseFunction = void(const Candidates& args, int64_t begin, int64_t end);

// The same for different processors; maxima of one are not for others.
SurveyRowsFunction SurveyRowsPortable;
ChooseFunction ChoosePortable;
#if defined(__x86_64__)
SurveyRowsFunction SurveyRowsAvx2, SurveyRowsAvx512;
ChooseFunction ChooseAvx2, ChooseAvx512;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_CANDIDATES_H_

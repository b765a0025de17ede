// The likeliest continuations of a group of beams.

#ifndef SAXML_EXT_ENGINE_KERNELS_CANDIDATES_H_
#define SAXML_EXT_ENGINE_KERNELS_CANDIDATES_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: S slots, R rows per slot, V tokens, E tokens that may be excluded, C
// candidates to find.
struct Candidates {
  int64_t slots, rows_per_slot, vocabulary, count;
  const float* logits;    // [S, R, V].
  const float* scores;    // [S, R]: the scores of the rows so far.
  const int32_t* barred;  // [S, E]; negative: no token.
  int64_t most_barred;    // E.
  const int32_t* active;  // [S]: the number of rows to continue.
  float* peaks;           // [S, R]: the largest logit of all tokens.
  float* log_totals;      // [S, R]: log of the sum of exp(logit - peak).
  float* maxima;          // [S, R, MaximaOf(V)]; scratch.
  // [S, C], best first. If sums are equal, the lower row comes first, then the
  // larger logit, then the lower token.
  float* sums;  // The row's score plus the log-probability.
  float* log_probs;
  int32_t* rows;
  int32_t* tokens;
};

// The number of tokens per maximum. Only the maximum of their logits is kept.
constexpr int64_t kTokensOfMaximum = 16;

// Returns the number of maxima of a row, for whole strips of kTokensOfMaximum
// vectors of at most 16 numbers each.
constexpr int64_t MaximaOf(int64_t vocabulary) {
  return (vocabulary + kTokensOfMaximum * 16 - 1) / (kTokensOfMaximum * 16) *
         16;
}

// Computes peaks, totals and maxima of the rows `begin` to `end` of S * R.
using SurveyRowsFunction = void(const Candidates& args, int64_t begin,
                                int64_t end);
// Chooses the candidates of the slots `begin` to `end`. All their rows must
// have been surveyed.
using ChooseFunction = void(const Candidates& args, int64_t begin, int64_t end);

// Variants for different processors. Their maxima are not compatible.
SurveyRowsFunction SurveyRowsPortable;
ChooseFunction ChoosePortable;
#if defined(__x86_64__)
SurveyRowsFunction SurveyRowsAvx2, SurveyRowsAvx512;
ChooseFunction ChooseAvx2, ChooseAvx512;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_CANDIDATES_H_

// The likeliest tokens, and the numbers that turn logits into probabilities.

#ifndef SAXML_EXT_ENGINE_KERNELS_LIKELIEST_H_
#define SAXML_EXT_ENGINE_KERNELS_LIKELIEST_H_

#include <cstdint>

namespace saxml_kernels {

// Letters: S slots, R rows per slot, V tokens, E tokens that may be excluded, C
// tokens to find.
struct Likeliest {
  int64_t rows_per_slot, vocabulary, count;
  const float* logits;    // [S, R, V].
  const int32_t* barred;  // [S, E]; negative: no token.
  int64_t most_barred;    // E.
  float* peaks;           // [S, R]: the largest logit of all tokens.
  float* log_totals;      // [S, R]: log of the sum of exp(logit - peak).
  float* values;          // [S, R, C]: logits, the largest first; of barred
                          // tokens minus infinity.
  int32_t* tokens;        // [S, R, C]: theirs; of equals the lowest first.
};

// Computes the rows `begin` to `end` of S * R.
using FindLikeliestFunction = void(const Likeliest& args, int64_t begin,
                                   int64_t end);

// Variants for different processors.
FindLikeliestFunction FindLikeliestPortable;
#if defined(__x86_64__)
FindLikeliestFunction FindLikeliestAvx2;
FindLikeliestFunction FindLikeliestAvx512;
#endif

}  // namespace saxml_kernels

#endif  // SAXML_EXT_ENGINE_KERNELS_LIKELIEST_H_

"""Calls the engine's own CPU kernels that choose tokens.

- `find_likeliest`: It takes two passes over the logits, one of them for their
  sum. XLA takes about six.
- `find_candidates`: It finds the best tokens of all beams of a group together,
  and reads only a few tokens of each beam.
"""

import jax

from saxml_ext.engine.kernels import kernels


def find_likeliest(
  logits: jax.Array, barred: jax.Array, count: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """Finds the likeliest tokens of each row.

  Args:
    logits: The logits, [S, R, V] float32.
    barred: The excluded tokens, whose logits count as minus infinity, [S, E]
      int32. Negative elements stand for no token.
    count: The number of tokens to find, C, at most V.

  Returns:
    The largest logit of all tokens, [S, R]; the logarithm of the sum of
    exp(logit - largest), [S, R]; the C largest logits, [S, R, C] float32, in
    descending order; and their tokens, int32. If logits are equal, the lowest
    token comes first. The first two results include excluded tokens.
  """
  rows = logits.shape[:2]
  best = kernels.floats(*rows, count), kernels.ints(*rows, count)
  results = (kernels.floats(*rows), kernels.floats(*rows), *best)
  return jax.ffi.ffi_call('saxml_find_likeliest', results)(logits, barred)


def find_candidates(
  logits: jax.Array,
  scores: jax.Array,
  barred: jax.Array,
  active: jax.Array,
  count: int,
) -> tuple[jax.Array, ...]:
  """Finds the likeliest continuations of each group of beams.

  Args:
    logits: The logits, [S, R, V] float32.
    scores: The sums of log-probabilities of the beams, [S, R] float32.
    barred: The excluded tokens, as in `find_likeliest`.
    active: The number of beams that each group continues, [S] int32. The other
      beams cost nothing.
    count: The number of continuations to find, C. If there are fewer, the last
      sums are minus infinity.

  Returns:
    The largest logits and the logarithms [S, R], as in `find_likeliest`. Both
    are 0 for beams that are not continued. Then, best first, the candidates'
    sums and their tokens' log-probabilities [S, C] float32, and their beams and
    tokens [S, C] int32. If sums are equal, the lower beam comes first, then the
    larger logit, then the lower token.
  """
  slots, rows, _ = logits.shape
  of_rows, sums = kernels.floats(slots, rows), kernels.floats(slots, count)
  chosen = kernels.ints(slots, count)
  results = (of_rows, of_rows, sums, sums, chosen, chosen)
  call = jax.ffi.ffi_call('saxml_find_candidates', results)
  return call(logits, scores, barred, active)

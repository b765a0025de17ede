"""Sampling and greedy decoding as a pure function.

A request's K rows are independent samples that share its prompt. The draw of a
row at a step depends only on the request's seed, the row and the step. So a
request always gets the same answers, in any slot and next to any other
requests.

As in praxis, top-k is applied first and top-p second, both to the model's own
probabilities. The temperature is applied to the remaining tokens.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import rule
from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib

# The number of times that the interval is halved in the search for the smallest
# probability of a nucleus. The result is exact to 2^-24 of the largest
# probability, which is the precision of float32.
_HALVINGS = 24


@dataclasses.dataclass(frozen=True)
class SampleRule(rule.Rule):
  """The rule of sampling.

  Attributes:
    max_top_k: The number of likeliest tokens from which samples are drawn, at
      most. Requests may choose fewer. If 0, samples are drawn from the whole
      vocabulary, and requests may not set top_k.
  """

  max_top_k: int = 0

  def known_tokens(self, max_stop_ids: int) -> int:
    """Returns a number of tokens; see `rule.Rule`.

    Logits are computed only in steps in which a sample is drawn from the whole
    vocabulary.
    """
    return max((self.max_top_k or 1) + max_stop_ids, self.max_logprobs)

  def choose(
    self, state: search.State, logits: search.Logits, live: jax.Array
  ) -> tuple[search.State, trace_lib.Chosen]:
    """Chooses the next tokens; see `rule.Rule`.

    A row that has ended runs on, but its further tokens are not kept.
    """
    del live
    options, kept = state.options, state.kept
    (slots, rows), vocab = state.scores.shape, logits.shape[-1]
    found = search.likeliest(state, logits, min(self.max_top_k or 1, vocab))
    draws = jax.vmap(_draws, (0, 0, None))(options.seed, state.step, rows)
    tokens, chosen = self._choose(state, logits, found, draws)
    log_probs = (chosen - found.peak[..., 0]) - found.log_total[..., 0]
    scores = state.scores + log_probs

    length = state.step + 1
    ended = search.is_stop(options, tokens)
    ended |= (length >= options.max_new)[:, None]
    unused = search.unused(options, rows)
    now = ended & ~kept.present & ~unused
    own = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (slots, rows))
    new = trace_lib.Kept(
      present=now,
      scores=scores,
      lengths=jnp.broadcast_to(length[:, None], scores.shape),
      last=tokens,
      logprobs=log_probs,
      rows=own,
    )
    present = kept.present | now
    kept = jax.tree.map(lambda a, b: jnp.where(now, a, b), new, kept)
    return (
      dataclasses.replace(
        state,
        scores=scores,
        kept=kept._replace(present=present),
        finished=(present | unused).all(1),
      ),
      trace_lib.Chosen(tokens, own, log_probs),
    )

  def _choose(
    self,
    state: search.State,
    logits: search.Logits,
    found: search.Likeliest,
    draws: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the next tokens and their logits, [S, K].

    Args:
      state: The state before the step.
      logits: The logits, [S, K or 1, V].
      found: The likeliest tokens.
      draws: The random numbers, [S, K] in [0, 1).
    """
    options = state.options
    temperature = options.temperature[:, None, None]
    cold = jnp.where(temperature > 0, temperature, 1)
    best, tokens = found.logits, found.tokens
    if not self.max_top_k:
      greedy = tuple(
        jnp.broadcast_to(x[..., 0], draws.shape) for x in (tokens, best)
      )

      def draw() -> tuple[jax.Array, jax.Array]:
        every = search.whole(logits)
        left = search.bar_stops(state, every)
        drawn = _draw(_nucleus(left, cold, options.top_p), draws)
        return drawn, _at(every, drawn[..., None])

      sampled = jax.lax.cond(
        (options.temperature > 0).any(), draw, lambda: greedy
      )
      return jax.tree.map(
        lambda a, b: jnp.where(temperature[..., 0] > 0, a, b), sampled, greedy
      )
    limit = jnp.where(options.top_k > 0, options.top_k, self.max_top_k)
    rank = jnp.arange(best.shape[-1])
    within = rank < limit[:, None, None]
    share = jax.nn.softmax(jnp.where(within, best, -jnp.inf))
    before = jnp.cumsum(share, -1) - share
    within &= before <= options.top_p[:, None, None]
    weights = jnp.exp((best - best[..., :1]) / cold) * within
    pick = jnp.where(temperature[..., 0] > 0, _draw(weights, draws), 0)
    return _at(tokens, pick[..., None]), _at(best, pick[..., None])


def _at(x: jax.Array, indices: jax.Array) -> jax.Array:
  """Returns the elements [S, K] of x [S, K or 1, n] at indices [S, K, 1]."""
  x = jnp.broadcast_to(x, (*indices.shape[:2], x.shape[-1]))
  return jnp.take_along_axis(x, indices, -1)[..., 0]


def _draws(seed: jax.Array, step: jax.Array, rows: int) -> jax.Array:
  """Returns one random number in [0, 1) for each row, [K]."""
  key = jax.random.fold_in(jax.random.key(seed), step)
  return jax.vmap(lambda row: jax.random.uniform(jax.random.fold_in(key, row)))(
    jnp.arange(rows)
  )


def _draw(weights: jax.Array, draws: jax.Array) -> jax.Array:
  """Returns indices [S, K] drawn by weights.

  Args:
    weights: The weights, [S, K or 1, n], not all of them zero.
    draws: The random numbers, [S, K] in [0, 1).
  """
  sums = jnp.cumsum(weights, -1)
  # The factor keeps a draw near 1 from ending up after the last weight.
  total = sums[..., -1] * np.float32(1 - 2**-20)
  return (sums <= (draws * total)[..., None]).sum(-1, dtype=jnp.int32)


def _nucleus(
  logits: jax.Array, temperature: jax.Array, top_p: jax.Array
) -> jax.Array:
  """Returns weights [S, R, V] of the smallest nucleus that has top_p [S].

  Bisection finds the smallest probability that belongs to the nucleus. Each
  halving is one pass over the vocabulary, but no sorting is needed.
  """
  relative = logits - logits.max(-1, keepdims=True)

  def cut(weights: jax.Array) -> jax.Array:
    shares = jnp.exp(relative)
    wanted = top_p[:, None, None] * shares.sum(-1, keepdims=True)

    def halve(_, bounds):
      low, high = bounds  # `low` keeps enough, `high` too few.
      middle = (low + high) / 2
      mass = (shares * (shares >= middle)).sum(-1, keepdims=True)
      enough = mass >= wanted
      return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.zeros_like(wanted)
    least, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (low, low + 1))
    return weights * (shares >= least)

  weights = jnp.exp(relative / temperature)
  return jax.lax.cond((top_p < 1).any(), cut, lambda w: w, weights)

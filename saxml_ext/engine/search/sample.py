"""Sampling and greedy decoding as one pure function.

A request's K rows are independent samples that share its prompt. What a row
draws at a step depends on the request's seed, the row and the step alone:
the same request has the same answers wherever and beside whatever it runs.

As in praxis, top-k and after it top-p choose among the model's own
probabilities, and the temperature is applied to what they leave.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.search import search

# Halvings of the interval in which the smallest probability of a nucleus is
# sought: to 2^-24 of the largest, which float32 cannot tell from nothing.
_HALVINGS = 24


@dataclasses.dataclass(frozen=True)
class SampleRule:
  """The settings of sampling.

  Attributes:
    num_samples: rows per request.
    max_top_k: samples come from this many tokens at most, and requests may ask
      for fewer; 0: from the whole vocabulary, and requests may not.
  """

  num_samples: int
  max_top_k: int = 0

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """See `search.Rule`."""
    return search.initial(options, self.num_samples, max_tokens)

  def advance(
    self, state: search.State, logits: jax.Array
  ) -> tuple[search.State, jax.Array]:
    """See `search.Rule`. A row that has ended runs on, but nothing is kept."""
    options = state.options
    slots, rows, vocab = state.scores.shape + logits.shape[-1:]
    found = search.likeliest(state, logits, min(self.max_top_k or 1, vocab))
    draws = jax.vmap(_draws, (0, 0, None))(options.seed, state.step, rows)
    tokens = self._choose(state, logits, found, draws)
    chosen = jnp.take_along_axis(
      jnp.broadcast_to(logits, (slots, rows, vocab)), tokens[..., None], -1
    )
    new = (chosen - found.peak) - found.log_total
    scores = state.scores + new[..., 0]

    length = state.step + 1
    ended = search.is_stop(options, tokens)
    ended |= (length >= options.max_new)[:, None]
    own = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (slots, rows))
    running = search.append(state, own, tokens)
    now = ended & ~state.kept
    kept = state.kept | ended
    return (
      search.State(
        options=options,
        step=length,
        tokens=running,
        scores=scores,
        kept_tokens=jnp.where(now[..., None], running, state.kept_tokens),
        kept_lengths=jnp.where(now, length[:, None], state.kept_lengths),
        kept_scores=jnp.where(now, scores, state.kept_scores),
        kept=kept,
        finished=kept.all(1),
      ),
      own,
    )

  def length_norm(self, length: np.ndarray) -> np.ndarray:
    """See `search.Rule`: samples are ranked by probability alone."""
    return np.ones_like(length, np.float64)

  def _choose(
    self,
    state: search.State,
    logits: jax.Array,
    found: search.Likeliest,
    draws: jax.Array,
  ) -> jax.Array:
    """Tokens [S, K] for logits [S, K or 1, V] and draws [S, K] in [0, 1)."""
    options = state.options
    temperature = options.temperature[:, None, None]
    cold = jnp.where(temperature > 0, temperature, 1)
    best, tokens = found.logits, found.tokens
    if not self.max_top_k:
      greedy = tokens[..., 0]

      def draw() -> jax.Array:
        logits_left = search.bar_stops(state, logits)
        return _draw(_nucleus(logits_left, cold, options.top_p), draws)

      sampled = jax.lax.cond(
        (options.temperature > 0).any(),
        draw,
        lambda: jnp.broadcast_to(greedy, draws.shape),
      )
      return jnp.where(temperature[..., 0] > 0, sampled, greedy)
    limit = jnp.where(options.top_k > 0, options.top_k, self.max_top_k)
    rank = jnp.arange(best.shape[-1])
    within = rank < limit[:, None, None]
    share = jax.nn.softmax(jnp.where(within, best, -jnp.inf))
    before = jnp.cumsum(share, -1) - share
    within &= before <= options.top_p[:, None, None]
    weights = jnp.exp((best - best[..., :1]) / cold) * within
    pick = jnp.where(temperature[..., 0] > 0, _draw(weights, draws), 0)
    tokens = jnp.broadcast_to(tokens, (*draws.shape, best.shape[-1]))
    return jnp.take_along_axis(tokens, pick[..., None], -1)[..., 0]


def _draws(seed: jax.Array, step: jax.Array, rows: int) -> jax.Array:
  """One number in [0, 1) for each row, [K]."""
  key = jax.random.fold_in(jax.random.key(seed), step)
  return jax.vmap(lambda row: jax.random.uniform(jax.random.fold_in(key, row)))(
    jnp.arange(rows)
  )


def _draw(weights: jax.Array, draws: jax.Array) -> jax.Array:
  """Indices [S, K] drawn by weights [S, K or 1, n], not all of them zero."""
  sums = jnp.cumsum(weights, -1)
  # Below the total, or a draw near 1 could fall behind the last weight.
  total = sums[..., -1] * np.float32(1 - 2**-20)
  return (sums <= (draws * total)[..., None]).sum(-1, dtype=jnp.int32)


def _nucleus(
  logits: jax.Array, temperature: jax.Array, top_p: jax.Array
) -> jax.Array:
  """Weights [S, R, V] of the likeliest tokens with top_p [S] of the whole.

  The smallest share that belongs to them is found by halving, which costs a
  pass over the vocabulary each time but needs no sorting of it.
  """
  relative = logits - logits.max(-1, keepdims=True)

  def cut(weights: jax.Array) -> jax.Array:
    shares = jnp.exp(relative)
    wanted = top_p[:, None, None] * shares.sum(-1, keepdims=True)

    def halve(_, bounds):
      low, high = bounds  # Shares from `low` are enough; from `high` too few.
      middle = (low + high) / 2
      mass = (shares * (shares >= middle)).sum(-1, keepdims=True)
      enough = mass >= wanted
      return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.zeros_like(wanted)
    least, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (low, low + 1))
    return weights * (shares >= least)

  weights = jnp.exp(relative / temperature)
  return jax.lax.cond((top_p < 1).any(), cut, lambda w: w, weights)

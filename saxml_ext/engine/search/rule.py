"""Defines the base class of search rules, and a rule that combines two rules.

A rule changes the searches by one decode step.
"""

import abc
import dataclasses

import jax
import jax.numpy as jnp

from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib


@dataclasses.dataclass(frozen=True)
class Rule(abc.ABC):
  """The rule by which a decode step changes the searches.

  Attributes:
    num_rows: The number of rows of a group, K.
    max_logprobs: The number of alternatives recorded for each token, A.
  """

  num_rows: int
  max_logprobs: int = dataclasses.field(default=0, kw_only=True)

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """Returns the state before the first token."""
    return _initial(options, self.num_rows, max_tokens, self.max_logprobs)

  def known_tokens(self, max_stop_ids: int) -> int | None:
    """Returns the number of likeliest tokens that suffice instead of logits.

    The number includes tokens that may be excluded. None means that the rule
    always needs all logits.

    Args:
      max_stop_ids: The number of stop ids, E.
    """
    del max_stop_ids
    return None

  @abc.abstractmethod
  def choose(
    self, state: search.State, logits: search.Logits, live: jax.Array
  ) -> tuple[search.State, trace_lib.Chosen]:
    """Adds one token to every running row.

    Args:
      state: The state before the step.
      logits: The logits, as in `advance`.
      live: True for groups whose results are used, [S] bool.

    Returns:
      The state after the step, and the choices of the running rows. The state's
      step, last and trace are not updated.
    """

  def advance(
    self,
    state: search.State,
    logits: search.Logits,
    live: jax.Array | None = None,
    slots: jax.Array | None = None,
  ) -> tuple[search.State, jax.Array]:
    """Adds one token to every running row, and records it in the trace.

    Args:
      state: The state before the step.
      logits: The logits of the token after each running row, [S, K, V] float32.
        After the prompt all rows are equal, and the shape is [S, 1, V]. A Head
        is allowed if `known_tokens` of its tokens are known.
      live: True for groups whose results are used, [S] bool. None stands for
        all groups.
      slots: The groups of the trace, as in `trace.write`.

    Returns:
      The state after the step, and the row that each running row continues, [S,
      K] int32. Finished groups are advanced too. The caller restores their old
      state with `freeze`.
    """
    if live is None:
      live = jnp.ones_like(state.finished)
    new, chosen = self.choose(state, logits, live)
    alternatives = None
    if self.max_logprobs:
      alternatives = _alternatives(state, logits, self.max_logprobs, live)
    new = dataclasses.replace(
      new,
      step=state.step + 1,
      last=chosen.tokens,
      trace=trace_lib.write(
        state.trace, state.step, chosen, alternatives, slots
      ),
    )
    return new, chosen.parents


@dataclasses.dataclass(frozen=True)
class MixedRule(Rule):
  """Beam search and sampling in one batch, as each request chooses.

  A rule is computed only in steps in which at least one live request uses it.

  Attributes:
    beams: The rule of groups that are not `sampled`.
    samples: The rule of groups that are `sampled`.
  """

  beams: Rule
  samples: Rule

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """Returns the state before the first token."""
    return search.freeze(
      options.sampled,
      self.samples.initial(options, max_tokens),
      self.beams.initial(options, max_tokens),
    )

  def choose(
    self, state: search.State, logits: jax.Array, live: jax.Array
  ) -> tuple[search.State, trace_lib.Chosen]:
    """Chooses the next tokens of each group by the group's own rule."""
    sampled = state.options.sampled
    trace = state.trace
    # Rules do not read the trace, and a conditional would copy it.
    nothing = trace_lib.Trace((), (), (), None)
    state = dataclasses.replace(state, trace=nothing)

    def by(rule: Rule, these: jax.Array):
      def choose():
        return rule.choose(state, logits, these)

      def leave():
        zeros = jnp.zeros_like(state.last)
        return state, trace_lib.Chosen(zeros, zeros, state.scores)

      return jax.lax.cond(these.any(), choose, leave)

    (drawn, token), (searched, beam) = (
      by(self.samples, live & sampled),
      by(self.beams, live & ~sampled),
    )
    chosen = jax.tree.map(
      lambda a, b: jnp.where(sampled[:, None], a, b), token, beam
    )
    new = search.freeze(sampled, drawn, searched)
    return dataclasses.replace(new, trace=trace), chosen


def _initial(
  options: search.Options, rows: int, max_tokens: int, max_logprobs: int
) -> search.State:
  """Returns the state before the first token: no choices and no answers."""
  slots = options.min_new.shape[0]
  zeros = jnp.zeros((slots, rows), jnp.int32)
  return search.State(
    options=options,
    step=jnp.zeros((slots,), jnp.int32),
    last=zeros,
    scores=zeros.astype(jnp.float32),
    ended=zeros.astype(bool),
    trace=trace_lib.empty(slots, max_tokens, rows, max_logprobs),
    kept=trace_lib.Kept(
      present=zeros.astype(bool),
      scores=jnp.full((slots, rows), search.NEVER),
      lengths=zeros,
      last=zeros,
      logprobs=zeros.astype(jnp.float32),
      rows=zeros,
    ),
    finished=jnp.zeros((slots,), bool),
  )


def _alternatives(
  state: search.State, logits: search.Logits, count: int, live: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns the likeliest tokens [S, R, A] and their log-probabilities.

  Returns zeros if no group that is `live` asks for them.
  """

  def find() -> tuple[jax.Array, jax.Array]:
    best = search.likeliest(state, logits, count, bar=False)
    return best.tokens, (best.logits - best.peak) - best.log_total

  def leave() -> tuple[jax.Array, jax.Array]:
    zeros = jnp.zeros((*logits.shape[:2], count))
    return zeros.astype(jnp.int32), zeros

  return jax.lax.cond((live & state.options.alternatives).any(), find, leave)

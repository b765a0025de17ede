"""Beam search and sampling side by side, as each request chooses.

While no request of one kind is being answered, its rule is not computed.
"""

import dataclasses

import jax
import jax.numpy as jnp

from saxml_ext.engine.search import rule as rule_lib
from saxml_ext.engine.search import search
from saxml_ext.engine.search import trace as trace_lib


@dataclasses.dataclass(frozen=True)
class MixedRule(rule_lib.Rule):
  """Two rules for groups of as many rows.

  Attributes:
    beams: the rule of groups that are not `sampled`.
    samples: of those that are.
  """

  beams: rule_lib.Rule
  samples: rule_lib.Rule

  def initial(self, options: search.Options, max_tokens: int) -> search.State:
    """See `rule.Rule`."""
    return search.freeze(
      options.sampled,
      self.samples.initial(options, max_tokens),
      self.beams.initial(options, max_tokens),
    )

  def choose(
    self, state: search.State, logits: jax.Array, live: jax.Array
  ) -> tuple[search.State, trace_lib.Chosen]:
    """See `rule.Rule`."""
    sampled = state.options.sampled
    trace = state.trace
    # Rules do not read it, and what passes through a condition is copied.
    nothing = trace_lib.Trace((), (), (), None)
    state = dataclasses.replace(state, trace=nothing)

    def by(rule: rule_lib.Rule, these: jax.Array):
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

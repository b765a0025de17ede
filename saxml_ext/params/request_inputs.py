"""What a request may set beside its text: EXTRA_INPUTS, by method."""

from collections.abc import Mapping
from typing import Any

from saxml_ext.params import template

# The extra input with a request's own MAX_DECODE_STEPS.
MAX_STEPS_KEY = 'per_example_max_decode_steps'
# The one with a request's own stop ids: a list of fixed length, filled up with
# 0 in front.
STOP_IDS_KEY = 'eos_id'


def defaults(
  params: type[template.ServableLMParams],
) -> dict[str, Mapping[str, Any]]:
  """Returns method -> keys that a request may set, with their defaults."""
  generate = dict(params.EXTRA_INPUTS)
  if MAX_STEPS_KEY in generate:
    # An override may lower MAX_DECODE_STEPS alone.
    limit = template.largest(params.MAX_DECODE_STEPS)
    generate[MAX_STEPS_KEY] = min(generate[MAX_STEPS_KEY], limit)
  return {
    'lm.generate': generate,
    'lm.generate_stream': generate,
    'lm.score': dict(params.SCORE_EXTRA_INPUTS),
    'lm.gradient': dict(params.SCORE_EXTRA_INPUTS),
    'lm.embed': {},
  }


def max_stop_ids(params: type[template.ServableLMParams]) -> int:
  """Returns the most stop ids that a request may have."""
  of_request = params.EXTRA_INPUTS.get(STOP_IDS_KEY, ())
  return max(len(params.STOP_TOKEN_IDS or ()), len(of_request), 1)

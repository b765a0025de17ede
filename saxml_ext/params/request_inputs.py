"""What a request may set beside its text: EXTRA_INPUTS, by method."""

from collections.abc import Mapping
from typing import Any

from saxml_ext.common import request_options
from saxml_ext.params import template

_MAX_STEPS = request_options.MAX_STEPS_KEY


def defaults(
  params: type[template.ServableLMParams],
) -> dict[str, Mapping[str, Any]]:
  """Returns method -> keys that a request may set, with their defaults."""
  generate = dict(params.EXTRA_INPUTS)
  if _MAX_STEPS in generate:
    # An override may lower MAX_DECODE_STEPS alone.
    limit = template.largest(params.MAX_DECODE_STEPS)
    generate[_MAX_STEPS] = min(generate[_MAX_STEPS], limit)
  return {
    'lm.generate': generate,
    'lm.generate_stream': generate,
    'lm.score': dict(params.SCORE_EXTRA_INPUTS),
    'lm.gradient': dict(params.SCORE_EXTRA_INPUTS),
    'lm.embed': {},
  }


def max_stop_ids(params: type[template.ServableLMParams]) -> int:
  """Returns the most stop ids that a request may have."""
  of_request = params.EXTRA_INPUTS.get(request_options.STOP_IDS_KEY, ())
  return max(len(params.STOP_TOKEN_IDS or ()), len(of_request), 1)

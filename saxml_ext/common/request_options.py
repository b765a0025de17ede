"""Defines a request's options: their types, their limits and their names.

A text request reaches a model in one of three ways:

- OpenAI's JSON through the gateway
- `sax.completion.CompleteRequest`
- `sax.server.lm.GenerateRequest` with extra inputs

Each way has its own name for an option. The engine's `Request` has a field for
each option, and `sax.group.Request` has the same fields. `OPTIONS` lists all of
these names.

An option that a request does not set has the value with which the model was
published.
"""

from collections.abc import Callable
import dataclasses
import math
import secrets
from typing import Any, Literal, TypeVar

MOST_STOP_TEXTS = 16
MOST_STOP_CHARACTERS = 256
MOST_STOP_IDS = 64
# More priorities would slow down the scheduling between them.
MOST_PRIORITY = 100
# An extra input cannot be absent. Sax sends this number if there is no seed.
NO_SEED = 15753

_INT32 = 2**31 - 1
_SEED_BITS = 32
_RequestT = TypeVar('_RequestT', bound=Any)

# The index is the number in `completion.proto` and `group.proto`. None stands
# for the model's own setting.
EARLY_STOPPING: tuple[bool | Literal['never'] | None, ...] = (
  None,
  True,
  False,
  'never',
)


@dataclasses.dataclass(frozen=True)
class Option:
  """An option, and its name on each way to the engine.

  Attributes:
    kind: The type of its value, or of each of its values.
    engine: The field of the engine's `Request`; '' if the engine has none.
    completion: The field of `CompleteRequest`.
    http: The parameter of OpenAI's API, or of vLLM's.
    extra_input: The key in `ExtraInputs`, which is the name in praxis.
    least: The smallest value. A model's own limits may be narrower.
    most: The largest value.
    above: The exclusive lower bound.
    http_range: The smallest and the largest value over HTTP, if they differ.
    search: The search that has the option: 'samples', 'beams', or '' for both.
    neutral: A value that has no effect on the choice of samples.
  """

  kind: type
  engine: str = ''
  completion: str = ''
  http: str = ''
  extra_input: str = ''
  least: float = -math.inf
  most: float = math.inf
  above: float = -math.inf
  http_range: tuple[float, float] | None = None
  search: Literal['', 'samples', 'beams'] = ''
  neutral: Any = None

  def convert(self, value: Any) -> Any:
    """Converts a number to `kind`.

    Raises:
      ValueError: The value is not a number, or it has a fraction but `kind` has
        none.
    """
    if not isinstance(value, (int, float)) or value != self.kind(value):
      whole = 'a whole' if self.kind is int else 'one'
      raise ValueError(f'is {value!r}, but must be {whole} number')
    return self.kind(value)


OPTIONS = (
  Option(
    int, 'max_new_tokens', 'max_tokens', 'max_tokens',
    'per_example_max_decode_steps', least=1, most=_INT32,
  ),
  Option(
    int, 'min_new_tokens', 'min_tokens', 'min_tokens', least=0, most=_INT32
  ),
  Option(
    float, 'temperature', 'temperature', 'temperature', 'temperature',
    least=0, http_range=(0, 100), search='samples', neutral=0,
  ),
  # In vLLM, -1 asks for all tokens. Elsewhere, 0 does.
  Option(
    int, 'top_k', 'top_k', 'top_k', 'per_example_top_k', least=0, most=_INT32,
    http_range=(-1, _INT32), search='samples', neutral=0,
  ),
  Option(
    float, 'top_p', 'top_p', 'top_p', 'per_example_top_p', above=0, most=1,
    search='samples', neutral=1,
  ),
  # Over HTTP, only the last 32 bits count.
  Option(
    int, 'seed', 'seed', 'seed', 'gumbel_prng_key', least=0,
    most=2**_SEED_BITS - 1, http_range=(-(2**63), 2**63 - 1), search='samples',
  ),
  Option(bool, 'beam_search', 'use_beam_search', 'use_beam_search'),
  Option(
    int, 'num_beams', 'num_beams', 'best_of', least=1, most=1024,
    search='beams',
  ),
  Option(
    float, 'length_penalty', 'length_penalty', 'length_penalty', least=-8,
    most=8, http_range=(-100, 100), search='beams',
  ),
  Option(
    str, 'early_stopping', 'early_stopping', 'early_stopping', search='beams'
  ),
  Option(int, 'num_samples', 'n', 'n', least=1, most=128, search='samples'),
  Option(int, 'logprobs', 'logprobs', 'logprobs', least=0, most=_INT32),
  Option(
    int, 'stop_ids', 'stop_token_ids', 'stop_token_ids', 'eos_id', least=0,
    most=_INT32,
  ),
  # The service handles these options. The engine's request lacks them.
  Option(str, '', 'stop', 'stop'),
  Option(bool, '', 'ignore_eos', 'ignore_eos'),
  Option(bool, '', 'echo', 'echo'),
  Option(bool, '', 'add_special_tokens', 'add_special_tokens'),
  Option(
    int, '', 'priority', 'priority', least=-MOST_PRIORITY, most=MOST_PRIORITY,
    http_range=(-_INT32 - 1, _INT32),
  ),
  Option(bool, 'stream', 'stream', 'stream'),
)  # fmt: skip

BY_ENGINE = {o.engine: o for o in OPTIONS if o.engine}
BY_COMPLETION = {o.completion: o for o in OPTIONS}
BY_HTTP = {o.http: o for o in OPTIONS}
BY_EXTRA_INPUT = {o.extra_input: o for o in OPTIONS if o.extra_input}

MAX_STEPS_KEY = BY_ENGINE['max_new_tokens'].extra_input
STOP_IDS_KEY = BY_ENGINE['stop_ids'].extra_input
# `sax.group.Request` has these fields of the engine's request unchanged.
PLAIN = tuple(
  name
  for name in BY_ENGINE
  if name not in ('stop_ids', 'early_stopping', 'stream')
)
# Only samples have these options. A beam search refuses them unless their value
# has no effect.
OF_SAMPLES = {
  o.completion: o.neutral
  for o in OPTIONS
  if o.search == 'samples' and o.extra_input
}


def draw_seed() -> int:
  """Returns a random seed."""
  return secrets.randbits(_SEED_BITS)


def with_seed(
  request: _RequestT, bits: Callable[[int], int] = secrets.randbits
) -> _RequestT:
  """Returns the engine's request with its own seed, or else with a random one.

  Args:
    request: The request.
    bits: A function that returns a random number with the given number of bits.
  """
  if request.seed is not None:
    return request
  return dataclasses.replace(request, seed=bits(_SEED_BITS))

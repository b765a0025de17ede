"""The parameters that completions and chat completions share.

A parameter that is not sent is the model's own choice, as it was published,
and not OpenAI's default: a model published with beam search is searched with
beams by clients that know nothing of them.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import types
from typing import Any

from saxml_ext.http.protocol import fields as fields_lib
from saxml_ext.protobuf import completion_pb2

# Of one request. OpenAI takes 4; vLLM has no limit.
_MOST_STOPS = 16
_MOST_STOP_IDS = 64
_MOST_ANSWERS = 128
_MOST_BEAMS = 1024

# Beam search refuses these, so that a default holds for samples alone.
_OF_SAMPLES = ('temperature', 'top_k', 'top_p')

_EARLY_STOPPING = {
  True: completion_pb2.EARLY_STOPPING_TRUE,
  False: completion_pb2.EARLY_STOPPING_FALSE,
  'never': completion_pb2.EARLY_STOPPING_NEVER,
}

# They tell who asks and why, or steer what has no part in the answer here.
_HARMLESS = (
  'metadata',
  'parallel_tool_calls',
  'prompt_cache_key',
  'prompt_cache_options',
  'prompt_cache_retention',
  'reasoning_effort',
  'request_id',
  'safety_identifier',
  'user',
)

# Of OpenAI and of vLLM, with the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
  'add_special_tokens': (True,),
  'allowed_token_ids': (),
  'audio': (),
  'bad_words': ([],),
  'cache_salt': (),
  'frequency_penalty': (0,),
  'function_call': ('none', 'auto'),
  'functions': ([],),
  'include_stop_str_in_output': (False,),
  'logit_bias': ({},),
  'logits_processors': ([],),
  'min_p': (0,),
  'modalities': (['text'],),
  'moderation': (),
  'prediction': (),
  'presence_penalty': (0,),
  'prompt_logprobs': (),
  'repetition_penalty': (1,),
  'response_format': ({'type': 'text'},),
  'return_tokens_as_token_ids': (False,),
  'service_tier': ('auto', 'default'),
  'skip_special_tokens': (True,),
  'spaces_between_special_tokens': (True,),
  'store': (False,),
  'structured_outputs': (),
  'suffix': ('',),
  'tool_choice': ('none', 'auto'),
  'tools': ([],),
  'truncate_prompt_tokens': (),
  'verbosity': ('medium',),
  'web_search_options': (),
}


@dataclasses.dataclass(frozen=True)
class Sampling:
  """What a request asks for, apart from its prompt and its form.

  Attributes:
    settings: fields of `completion_pb2.CompleteRequest` without the prompt.
    n: answers wanted.
    stream: whether the answer comes as server-sent events.
    include_usage: whether its last event counts tokens.
    token_ids: whether answers come with their token ids.
    default_max_tokens: The most tokens of an answer where the request names
      none; the model's own limit holds as well.
  """

  settings: dict[str, Any]
  n: int
  stream: bool
  include_usage: bool
  token_ids: bool
  default_max_tokens: int | None = None

  @property
  def stop_token_ids(self) -> Sequence[int]:
    """The ids that end an answer beyond the model's own."""
    return self.settings.get('stop_token_ids', ())


def take(
  fields: fields_lib.Fields,
  max_tokens_name: str,
  defaults: Mapping[str, Any] = types.MappingProxyType({}),
) -> Sampling:
  """Takes the shared parameters.

  Args:
    fields: of the request; what is left belongs to one form alone.
    max_tokens_name: what the form calls the most tokens of an answer.
    defaults: The model's values of parameters that the request leaves out.

  Raises:
    problems.BadRequest: a value does not fit, or cannot be honoured.
  """
  stream = fields.flag('stream') or False
  settings = {
    'max_tokens': fields.integer(max_tokens_name, 1),
    'min_tokens': fields.integer('min_tokens', 0),
    'temperature': fields.number('temperature', 0, 2),
    'top_p': _top_p(fields),
    'top_k': _top_k(fields),
    'seed': _seed(fields),
    'length_penalty': fields.number('length_penalty', -100, 100),
    'early_stopping': _early_stopping(fields),
    'stop': _stops(fields),
    'stop_token_ids': fields.ids('stop_token_ids', _MOST_STOP_IDS),
    'ignore_eos': fields.flag('ignore_eos'),
    'priority': fields.integer('priority'),
  }
  n, answers = _answers(fields, stream)
  settings |= answers
  include_usage = _stream_options(fields, stream)
  token_ids = fields.flag('return_token_ids') or False
  fields.take_harmless(_HARMLESS)
  fields.refuse_unless(_NEUTRAL)
  told = {k: v for k, v in settings.items() if v is not None}
  default_max_tokens = None
  if 'max_tokens' not in told:
    default_max_tokens = defaults.get('max_tokens')
  if not told.get('use_beam_search'):
    told = {k: defaults[k] for k in _OF_SAMPLES if k in defaults} | told
  return Sampling(told, n, stream, include_usage, token_ids, default_max_tokens)


def _answers(
  fields: fields_lib.Fields, stream: bool
) -> tuple[int, dict[str, Any]]:
  """How many answers are wanted, and the settings of who searches for them."""
  n = fields.integer('n', 1, _MOST_ANSWERS) or 1
  best_of = fields.integer('best_of', 1, _MOST_BEAMS)
  beams = fields.flag('use_beam_search')
  if best_of is not None and best_of < n:
    fields.fail('best_of', f'{best_of} is less than n, which is {n}')
  if beams:
    found = {'n': n, 'use_beam_search': True, 'num_beams': best_of or n}
    return n, found
  if best_of is None or best_of == n:
    return n, {'n': n, 'use_beam_search': beams}
  if stream:
    fields.fail(
      'best_of',
      f'the best {n} of {best_of} samples are known at the end only: leave out'
      ' stream, or send best_of as n',
    )
  if best_of > _MOST_ANSWERS:
    fields.fail('best_of', f'{best_of} samples; the limit is {_MOST_ANSWERS}')
  return n, {'n': best_of, 'use_beam_search': False}


def _top_p(fields: fields_lib.Fields) -> float | None:
  value = fields.number('top_p', 0, 1)
  if value == 0:
    fields.fail('top_p', '0 leaves no token; send more, or temperature 0')
  return value


def _top_k(fields: fields_lib.Fields) -> int | None:
  value = fields.integer('top_k', -1)
  # vLLM's -1 asks for all tokens, which is 0 in the cell.
  return 0 if value == -1 else value


def _seed(fields: fields_lib.Fields) -> int | None:
  value = fields.integer('seed', -(2**63), 2**63 - 1)
  # The cell's seeds have 32 bits.
  return None if value is None else value % 2**32


def _early_stopping(
  fields: fields_lib.Fields,
) -> completion_pb2.EarlyStopping | None:
  value = fields.raw('early_stopping')
  if value is None:
    return None
  # 1 == True, but is no answer here.
  if isinstance(value, bool) or value == 'never':
    return _EARLY_STOPPING[value]
  fields.fail('early_stopping', 'send true, false or "never"')


def _stops(fields: fields_lib.Fields) -> list[str]:
  stops = fields.texts('stop', _MOST_STOPS)
  if '' in stops:
    fields.fail('stop', 'an empty text would end every answer at once')
  return stops


def _stream_options(fields: fields_lib.Fields, stream: bool) -> bool:
  if 'stream_options' in fields and not stream:
    fields.fail('stream_options', 'send it with "stream": true only')
  options = fields.members('stream_options')
  include_usage = options.flag('include_usage') or False
  options.take_harmless(('include_obfuscation',))
  options.refuse_unless({'continuous_usage_stats': (False,)})
  options.finish()
  return include_usage

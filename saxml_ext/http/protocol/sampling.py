"""The parameters that completions and chat completions share.

A parameter that is not sent is the model's own choice, as it was published,
and not OpenAI's default: a model published with beam search is searched with
beams by clients that know nothing of them.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec

from saxml_ext.http.protocol import fields

# Prompts of one request, each a request of its own in the cell.
_MOST_PROMPTS = 256
# Far above any model's; the model's own limit is for the cell to report.
_MOST_IDS = 2**20
# Of one request. OpenAI takes 4; vLLM has no limit.
_MOST_STOPS = 16
_MOST_STOP_IDS = 64
_MOST_ANSWERS = 128
_MOST_BEAMS = 1024

# Beam search refuses these, so that a default holds for samples alone.
_OF_SAMPLES = ('temperature', 'top_k', 'top_p')
# Parameters that are fields of `completion_pb2.CompleteRequest` as they are.
_SETTINGS = (
  *('max_tokens', 'min_tokens', 'temperature', 'top_p', 'length_penalty'),
  *('early_stopping', 'stop_token_ids', 'ignore_eos', 'priority'),
)

Prompt: TypeAlias = str | Sequence[int]

Int32: TypeAlias = Annotated[
  int, msgspec.Meta(ge=-fields.MOST_INTEGER - 1, le=fields.MOST_INTEGER)
]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=fields.MOST_INTEGER)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=fields.MOST_INTEGER)]
Ids: TypeAlias = Annotated[list[Count], msgspec.Meta(max_length=_MOST_IDS)]
_PromptIds: TypeAlias = Annotated[
  list[Count], msgspec.Meta(min_length=1, max_length=_MOST_IDS)
]
# A text, texts, ids or arrays of ids.
AnyPrompt: TypeAlias = (
  str
  | Annotated[
    list[str | Count | _PromptIds],
    msgspec.Meta(min_length=1, max_length=_MOST_IDS),
  ]
)


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
  """How a stream reports tokens."""

  include_usage: bool | None = None
  include_obfuscation: Annotated[
    Any, msgspec.Meta(description='accepted, without effect')
  ] = None
  continuous_usage_stats: Annotated[
    Any, msgspec.Meta(extra_json_schema={'enum': [False, None]})
  ] = None


class Sampling(fields.Request, kw_only=True):
  """What a request asks for, apart from its prompt and its form."""

  model: str | None = None
  max_tokens: Positive | None = None
  min_tokens: Count | None = None
  temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
  top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
  top_k: Annotated[int, msgspec.Meta(ge=-1, le=fields.MOST_INTEGER)] | None = (
    None
  )
  seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
  length_penalty: Annotated[float, msgspec.Meta(ge=-100, le=100)] | None = None
  early_stopping: bool | Literal['never'] | None = None
  stop: (
    str | Annotated[list[str], msgspec.Meta(max_length=_MOST_STOPS)] | None
  ) = None
  stop_token_ids: (
    Annotated[list[Count], msgspec.Meta(max_length=_MOST_STOP_IDS)] | None
  ) = None
  ignore_eos: bool | None = None
  priority: Int32 | None = None
  n: Annotated[int, msgspec.Meta(ge=1, le=_MOST_ANSWERS)] = 1
  best_of: Annotated[int, msgspec.Meta(ge=1, le=_MOST_BEAMS)] | None = None
  use_beam_search: bool | None = None
  stream: bool = False
  stream_options: StreamOptions | None = None
  return_token_ids: bool = False

  # They say who asks and why, or steer what has no part in the answer here.
  HARMLESS: ClassVar[tuple[str, ...]] = (
    *('metadata', 'parallel_tool_calls', 'prompt_cache_key'),
    *('prompt_cache_options', 'prompt_cache_retention', 'reasoning_effort'),
    *('request_id', 'safety_identifier', 'user'),
  )
  # Of OpenAI and of vLLM.
  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
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

  @property
  def include_usage(self) -> bool:
    """True if the last event of the stream counts tokens."""
    return bool(self.stream_options and self.stream_options.include_usage)

  def settings(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields of `completion_pb2.CompleteRequest`, without the prompt.

    Args:
      defaults: The model's values of parameters that the request leaves out.

    Raises:
      problems.BadRequest: Parameters do not fit together.
    """
    self._check_stream()
    if self.top_p == 0:
      fields.fail('top_p', '0 leaves no token; send more, or temperature 0')
    stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
    if '' in stops:
      fields.fail('stop', 'an empty text would end every answer at once')
    found: dict[str, Any] = {'stop': stops} | self._answers()
    for name in _SETTINGS:
      if (value := getattr(self, name)) is not None:
        found[name] = value
    if self.top_k is not None:
      # vLLM's -1 asks for all tokens, which is 0 in the cell.
      found['top_k'] = max(0, self.top_k)
    if self.seed is not None:
      found['seed'] = self.seed % 2**32  # The cell's seeds have 32 bits.
    if not found.get('use_beam_search'):
      found = {k: defaults[k] for k in _OF_SAMPLES if k in defaults} | found
    return found

  def _check_stream(self) -> None:
    if self.stream_options is None:
      return
    if not self.stream:
      fields.fail('stream_options', 'send it with "stream": true only')
    fields.check_neutral(
      'stream_options.continuous_usage_stats',
      self.stream_options.continuous_usage_stats,
      (False,),
    )

  def _answers(self) -> dict[str, Any]:
    """Returns the number of answers, and the search for them."""
    n, best_of = self.n, self.best_of or self.n
    if best_of < n:
      fields.fail('best_of', f'{best_of} is less than n, which is {n}')
    if self.use_beam_search:
      return {'n': n, 'use_beam_search': True, 'num_beams': best_of}
    if best_of == n:
      told = self.use_beam_search
      return {'n': n} | ({} if told is None else {'use_beam_search': told})
    if self.stream:
      fields.fail(
        'best_of',
        f'the best {n} of {best_of} samples are known at the end only: leave'
        ' out stream, or send best_of as n',
      )
    if best_of > _MOST_ANSWERS:
      fields.fail('best_of', f'{best_of} samples; the limit is {_MOST_ANSWERS}')
    return {'n': best_of, 'use_beam_search': False}


def prompts_of(value: str | list[Any]) -> list[Prompt]:
  """Returns the prompts of a request, each a text or token ids.

  Raises:
    problems.BadRequest: Texts and ids are mixed, or there are too many prompts.
  """
  if isinstance(value, str):
    return [value]
  if isinstance(value[0], int):
    if not all(isinstance(item, int) for item in value):
      fields.fail('prompt', 'send texts only, or arrays of token ids only')
    return [value]
  if any(isinstance(item, int) for item in value):
    fields.fail('prompt', 'send texts only, or arrays of token ids only')
  if len(value) > _MOST_PROMPTS:
    fields.fail(
      'prompt', f'{len(value)} prompts were sent; the limit is {_MOST_PROMPTS}'
    )
  return value

"""Parses the parameters that completions and chat completions share.

If a parameter is absent, the published settings of the model apply, not
OpenAI's defaults. For example, a model published with beam search uses beam
search for all clients.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec

from saxml_ext.common import request_options
from saxml_ext.http.protocol import fields
from saxml_ext.protobuf import completion_pb2

# This is far above the limit of any model. The cell checks the model's limit.
_MOST_IDS = 2**20
_ANSWERS = request_options.BY_HTTP['n']
_IDS = request_options.BY_HTTP['stop_token_ids']

_LOGPROBS = request_options.BY_HTTP['logprobs']
LOGPROBS = (_LOGPROBS.least, _LOGPROBS.most)
_RANGES = {
  name: option.http_range or (max(option.least, option.above), option.most)
  for name, option in request_options.BY_HTTP.items()
  if option.kind in (int, float) and name not in ('logprobs', _IDS.http)
}

# The text of a chat template has segments if messages have special tokens.
Text: TypeAlias = str | completion_pb2.Segments
Prompt: TypeAlias = Text | Sequence[int]

Id: TypeAlias = Annotated[
  int, msgspec.Meta(ge=int(_IDS.least), le=int(_IDS.most))
]
Ids: TypeAlias = Annotated[list[Id], msgspec.Meta(max_length=_MOST_IDS)]
_PromptIds: TypeAlias = Annotated[
  list[Id], msgspec.Meta(min_length=1, max_length=_MOST_IDS)
]
# A text, a list of texts, a list of ids, or a list of lists of ids.
AnyPrompt: TypeAlias = (
  str
  | Annotated[
    list[str | Id | _PromptIds],
    msgspec.Meta(min_length=1, max_length=_MOST_IDS),
  ]
)


class StreamOptions(fields.Request):
  """The options of a stream."""

  # OpenAI pads chunks, so that their sizes do not reveal the tokens.
  HARMLESS: ClassVar[tuple[str, ...]] = ('include_obfuscation',)

  include_usage: bool | None = None
  continuous_usage_stats: bool | None = None


class Sampling(fields.Request, kw_only=True):  # type: ignore[call-arg]
  """The parameters of a request, except its prompt and its format."""

  model: str | None = None
  max_tokens: int | None = None
  # OpenAI has it only in chats.
  max_completion_tokens: int | None = None
  min_tokens: int | None = None
  temperature: float | None = None
  top_p: float | None = None
  top_k: int | None = None
  seed: int | None = None
  length_penalty: float | None = None
  early_stopping: bool | Literal['never'] | None = None
  stop: (
    str
    | Annotated[
      list[str], msgspec.Meta(max_length=request_options.MOST_STOP_TEXTS)
    ]
    | None
  ) = None
  stop_token_ids: (
    Annotated[list[Id], msgspec.Meta(max_length=request_options.MOST_STOP_IDS)]
    | None
  ) = None
  ignore_eos: bool | None = None
  add_special_tokens: bool | None = None
  priority: int | None = None
  n: int = 1
  best_of: int | None = None
  use_beam_search: bool | None = None
  stream: bool = False
  stream_options: StreamOptions | None = None
  return_token_ids: bool = False

  RANGES: ClassVar[Mapping[str, tuple[float, float]]] = _RANGES | {
    'max_completion_tokens': _RANGES['max_tokens']
  }
  # These fields identify the client, give hints to other servers, or belong to
  # features that this server does not have.
  HARMLESS: ClassVar[tuple[str, ...]] = tuple(
    'cache_salt guided_decoding_backend guided_whitespace_pattern'
    ' include_reasoning media_io_kwargs metadata mm_processor_kwargs'
    ' parallel_tool_calls prediction prompt_cache_key prompt_cache_options'
    ' prompt_cache_retention reasoning_effort request_id safety_identifier'
    ' service_tier spaces_between_special_tokens store user verbosity'.split()
  )
  # These fields are parameters of OpenAI and of vLLM.
  NEUTRAL: ClassVar[Mapping[str, tuple[Any, ...]]] = {
    name: values
    for values, names in (
      (
        (),
        'allowed_token_ids audio guided_choice guided_grammar guided_json'
        ' guided_regex moderation prompt_logprobs structural_tag'
        ' structured_outputs truncate_prompt_tokens',
      ),
      ((0,), 'frequency_penalty min_p presence_penalty'),
      ((1,), 'repetition_penalty'),
      ((False,), 'include_stop_str_in_output return_tokens_as_token_ids'),
      ((True,), 'skip_special_tokens'),
      (('',), 'suffix'),
      (([],), 'bad_words documents functions logits_processors tools'),
      (({},), 'kv_transfer_params logit_bias vllm_xargs web_search_options'),
      (('none', 'auto'), 'function_call tool_choice'),
      ((['text'],), 'modalities'),
      (({'type': 'text'},), 'response_format'),
    )
    for name in names.split()
  }

  NESTED: ClassVar[Mapping[str, type[fields.Request]]] = {
    'stream_options': StreamOptions
  }

  @property
  def include_usage(self) -> bool:
    """True if the last event of the stream has the token counts."""
    return bool(self.stream_options and self.stream_options.include_usage)

  @property
  def continuous_usage(self) -> bool:
    """True if each event of the stream has the token counts so far."""
    options = self.stream_options
    return self.include_usage and bool(
      options and options.continuous_usage_stats
    )

  def settings(self) -> dict[str, Any]:
    """Returns fields of `completion_pb2.CompleteRequest`, without the prompt.

    Raises:
      problems.BadRequest: The parameters contradict each other.
    """
    if self.stream_options is not None and not self.stream:
      fields.fail('stream_options', 'it requires "stream": true')
    if self.top_p == 0:
      fields.fail(
        'top_p', '0 leaves no token. Send a larger value, or temperature 0'
      )
    stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
    if self.stop == '':
      stops = []
    elif '' in stops:
      fields.fail('stop', 'an empty string would end every answer at once')
    settings: dict[str, Any] = {}
    for option in request_options.OPTIONS:
      value = getattr(self, option.http, None)
      if value is not None and option.completion == option.http:
        settings[option.completion] = value
    settings |= {'stop': stops} | self._answers()
    if self.max_completion_tokens is not None:
      # Some clients send both, for servers that read only one.
      if self.max_tokens not in (None, self.max_completion_tokens):
        fields.fail(
          'max_completion_tokens',
          f'it is {self.max_completion_tokens}, but max_tokens is'
          f' {self.max_tokens}. Send one of them',
        )
      # max_tokens is the older name.
      settings['max_tokens'] = self.max_completion_tokens
    if self.top_k is not None:
      # In vLLM, -1 stands for all tokens; in the cell, 0 does.
      settings['top_k'] = max(0, self.top_k)
    if self.seed is not None:
      # The cell's seeds have 32 bits.
      settings['seed'] = self.seed % 2**32
    return settings

  def _answers(self) -> dict[str, Any]:
    """Returns the settings for the number of answers and the search."""
    n, best_of = self.n, self.best_of or self.n
    if best_of < n:
      fields.fail('best_of', f'{best_of} is less than n={n}')
    if self.use_beam_search:
      return {'n': n, 'use_beam_search': True, 'num_beams': best_of}
    if best_of == n:
      search = self.use_beam_search
      return {'n': n} | ({} if search is None else {'use_beam_search': search})
    if self.stream:
      fields.fail(
        'best_of',
        f'the best {n} of {best_of} samples are known only at the end. Omit'
        f' stream, or send best_of={n}',
      )
    if best_of > _ANSWERS.most:
      fields.fail(
        'best_of', f'{best_of} is more than the limit of {_ANSWERS.most}'
      )
    return {'n': best_of, 'use_beam_search': False}

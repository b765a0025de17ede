"""Defines requests and results of the engine, and checks requests."""

from collections.abc import Sequence
import dataclasses
from typing import TypeAlias

import numpy as np

from saxml_ext.engine import config as config_lib

# The maximum length penalty. With a higher power, lengths of 4,096 tokens
# approach the limit of float32.
_MOST_PENALTY = 8


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt and the options of its answer; None stands for the default.

  The defaults are the engine's settings.

  Attributes:
    tokens: The tokens of the prompt, [T] int32.
    max_new_tokens: The maximum number of tokens of the answer.
    min_new_tokens: The number of tokens before which no stop id is chosen.
    stop_ids: The tokens that end the answer. The default is the engine's
      eos_id.
    temperature: The temperature of samples. 0 takes the likeliest token.
    top_k: The number of likeliest tokens from which samples are drawn. 0 and -1
      stand for the whole vocabulary, and 0 for max_top_k if that is a limit.
    top_p: The share of probability of the likeliest tokens from which samples
      are drawn.
    seed: The seed. Equal seeds give equal samples. None draws a seed.
    beam_search: True for beams, False for samples. An engine may support only
      one.
    num_beams: The number of beams.
    length_penalty: The power in the score of the reference's beam search,
      sum(logprob) / length**length_penalty.
    early_stopping: The criterion that finishes the reference's beam search, as
      in `config.EngineConfig`.
    num_samples: The number of samples.
    logprobs: The number of likeliest tokens to return at each position, with
      their log-probabilities. 0 returns only the log-probabilities of the
      chosen tokens, and None returns nothing.
    stream: True to report the certain tokens of the answer while it grows.
  """

  tokens: np.ndarray
  max_new_tokens: int | None = None
  min_new_tokens: int | None = None
  stop_ids: Sequence[int] | None = None
  temperature: float | None = None
  top_k: int | None = None
  top_p: float | None = None
  seed: int | None = None
  beam_search: bool | None = None
  num_beams: int | None = None
  length_penalty: float | None = None
  early_stopping: bool | str | None = None
  num_samples: int | None = None
  logprobs: int | None = None
  stream: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled(Request):
  """A request with the defaults filled in; seed and logprobs may be None."""

  max_new_tokens: int
  min_new_tokens: int
  stop_ids: Sequence[int]
  temperature: float
  top_k: int
  top_p: float
  beam_search: bool
  num_beams: int
  length_penalty: float
  early_stopping: bool | str
  num_samples: int

  @property
  def is_single(self) -> bool:
    """True if the answer is one sample, which may use the whole context."""
    return not self.beam_search and self.num_samples == 1

  @property
  def rows(self) -> int:
    """The number of beams or samples of the request."""
    return self.num_beams if self.beam_search else self.num_samples


# The likeliest tokens at each of n positions, best first: ids [n, A] int32 and
# their log-probabilities [n, A] float32.
Alternatives: TypeAlias = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Hypothesis:
  """Generated tokens and their scores.

  Log-probabilities are those of the model itself, before the temperature and
  before the exclusion of tokens.

  Attributes:
    tokens: The tokens, [N] int32, including a stop id that was chosen.
    logprob: The sum of the tokens' log-probabilities.
    score: The score by which the search ranks.
    row: The row of a sample, as in `Progress`.
    token_logprobs: The tokens' log-probabilities, [N] float32, if requested.
    alternatives: The likeliest tokens at each position, if requested.
  """

  tokens: np.ndarray
  score: float
  logprob: float
  token_logprobs: np.ndarray | None = None
  alternatives: Alternatives | None = None
  row: int = 0


@dataclasses.dataclass(frozen=True)
class Result:
  """The beams or samples of a request, best first."""

  hypotheses: tuple[Hypothesis, ...]


@dataclasses.dataclass(frozen=True)
class Partial:
  """The beginning of an answer, starting at its first token.

  Attributes:
    tokens: The tokens, [n] int32.
    finished: True if no more tokens follow.
    score: The sum of the tokens' log-probabilities.
    token_logprobs: The tokens' log-probabilities, as in `Hypothesis`.
    alternatives: The likeliest tokens, as in `Hypothesis`.
  """

  tokens: np.ndarray
  finished: bool
  score: float
  token_logprobs: np.ndarray | None = None
  alternatives: Alternatives | None = None


@dataclasses.dataclass(frozen=True)
class Progress:
  """The certain tokens of the answers of a request that is being decoded.

  Beams have one row, with which the best hypothesis will begin. Samples have
  one row each.
  """

  rows: tuple[Partial, ...]


def settle(request: Request, engine: config_lib.EngineConfig) -> Settled:
  """Returns the request with the engine's settings for fields that are None.

  The seed is not changed.

  Raises:
    ValueError: Neither the request nor the engine has a token that ends an
      answer.
  """
  if request.stop_ids is None and engine.eos_id is None:
    raise ValueError(
      'the request has no stop_ids and the engine has no eos_id. Set one of'
      ' them to the token that ends an answer.'
    )
  by_beams = engine.beam_search if engine.search == 'any' else engine.has_beams
  defaults = {
    'max_new_tokens': engine.max_new_tokens,
    'min_new_tokens': engine.min_new_tokens,
    'stop_ids': (engine.eos_id,),
    'temperature': engine.temperature,
    'top_k': engine.max_top_k,
    'top_p': engine.top_p,
    'beam_search': by_beams,
    'num_beams': engine.most_beams,
    'length_penalty': engine.length_penalty,
    'early_stopping': engine.early_stopping,
    'num_samples': engine.most_samples,
  }
  # A subclass may have more fields.
  values = {
    f.name: getattr(request, f.name) for f in dataclasses.fields(Request)
  }
  given = {name: value for name, value in values.items() if value is not None}
  settled = Settled(**{**defaults, **given})
  if not engine.max_context:
    return settled
  rest = max(engine.max_context - len(settled.tokens), 1)
  if not settled.is_single:
    rest = min(rest, engine.max_new_tokens)
  most = rest if request.max_new_tokens is None else request.max_new_tokens
  if settled.is_single or request.max_new_tokens is None:
    most = min(most, rest)  # An answer ends with the context.
  return dataclasses.replace(
    settled,
    max_new_tokens=most,
    min_new_tokens=min(settled.min_new_tokens, most),
  )


@dataclasses.dataclass(frozen=True)
class Checks:
  """Raises ValueError for requests that an engine cannot serve.

  Attributes:
    engine: The configuration that sets the limits.
    vocab_size: The number of token ids.
  """

  engine: config_lib.EngineConfig
  vocab_size: int

  def request(self, request: Request) -> None:
    """Raises ValueError if a request exceeds the engine's limits."""
    e = self.engine
    self.prompt(request.tokens)
    r = settle(request, e)
    if (
      e.max_context and r.max_new_tokens > e.max_new_tokens and not r.is_single
    ):
      raise ValueError(
        f'max_new_tokens is {r.max_new_tokens}, but must be at most'
        f' {e.max_new_tokens} for {r.rows} beams or samples. Request fewer'
        ' tokens, or one sample, which may use the whole context.'
      )
    limit = e.max_context if e.max_context else e.max_new_tokens
    if not 1 <= r.max_new_tokens <= limit:
      raise ValueError(
        f'max_new_tokens is {r.max_new_tokens}, but must be between 1 and'
        f" {limit}, the engine's limit. Request fewer tokens or"
        ' serve with a larger limit.'
      )
    if r.min_new_tokens < 0:
      raise ValueError(
        f'min_new_tokens is {r.min_new_tokens}, but must be at least 0. Leave'
        ' it out or set it to 0.'
      )
    self._stop_ids(r.stop_ids)
    self._sampling(r)
    self._search(request, beams=r.beam_search)
    self._logprobs(request.logprobs)

  def prompt(self, tokens: np.ndarray) -> np.ndarray:
    """Returns a prompt [T] as int32.

    Raises:
      ValueError: The prompt exceeds the engine's limits.
    """
    tokens = self.tokens('prompt', tokens)
    if len(tokens) > self.engine.max_prompt:
      raise ValueError(
        f'the prompt has {len(tokens)} tokens, above the limit of'
        f' {self.engine.max_prompt}. Shorten it or serve with a larger'
        ' max_prompt.'
      )
    return tokens

  def tokens(self, name: str, tokens: np.ndarray) -> np.ndarray:
    """Returns tokens [T] as int32.

    Args:
      name: The name of the tokens in error messages.
      tokens: Any array.

    Raises:
      ValueError: The array is not a row of one or more tokens of the
        vocabulary.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or not tokens.size:
      raise ValueError(
        f'the {name} has shape {tokens.shape}, but must be one row of at least'
        ' one token.'
      )
    if tokens.min() < 0 or tokens.max() >= self.vocab_size:
      raise ValueError(
        f'the {name} has tokens from {tokens.min()} to {tokens.max()}, but the'
        f' vocabulary has 0 to {self.vocab_size - 1}. Encode it with the'
        " model's own tokenizer."
      )
    return tokens.astype(np.int32)

  def _stop_ids(self, ids: Sequence[int]) -> None:
    if len(ids) > self.engine.max_stop_ids:
      raise ValueError(
        f"the request has {len(ids)} stop ids, above the engine's max_stop_ids"
        f' of {self.engine.max_stop_ids}. Send fewer or raise max_stop_ids.'
      )
    if any(not 0 <= i < self.vocab_size for i in ids):
      raise ValueError(
        f'stop ids {list(ids)} are not all in the vocabulary, 0 to'
        f' {self.vocab_size - 1}.'
      )

  def _sampling(self, request: Settled) -> None:
    r = request
    if not 0 <= r.temperature < float('inf'):
      raise ValueError(
        f'temperature is {r.temperature}, but must be finite and at least 0,'
        ' which selects the likeliest token.'
      )
    if not 0 < r.top_p <= 1:
      raise ValueError(
        f'top_p is {r.top_p}, but must be above 0 and at most 1 (all tokens).'
        ' For greedy decoding, send temperature 0.'
      )
    # At temperature 0, top_k has no effect.
    if self.engine.any_top_k or not r.temperature:
      least, most = -1, 2**31 - 1
      remedy = 'Send 0 or -1 for the whole vocabulary.'
    else:
      least, most = 0, self.engine.max_top_k
      remedy = (
        f'The model is served with TOP_K={most}. Send another top_k, or serve'
        ' the model with MIXED_SEARCH=true, which allows any top_k.'
      )
    if not least <= r.top_k <= most:
      raise ValueError(
        f'top_k is {r.top_k}, but must be between {least} and {most}. {remedy}'
      )
    if not 0 <= (r.seed or 0) < 2**32:
      raise ValueError(f'seed is {r.seed}, not between 0 and 2**32 - 1.')

  def _search(self, request: Request, beams: bool) -> None:
    """Raises ValueError if the chosen search does not support the request."""
    e = self.engine
    if not (e.has_beams if beams else e.has_samples):
      kind, only = ('True', 'samples') if beams else ('False', 'beam search')
      raise ValueError(
        f'beam_search is {kind}, but this model supports only {only}. Leave it'
        " out or serve with search='any' (MIXED_SEARCH=True)."
      )
    self._rows('num_beams', request.num_beams, beams, e.most_beams)
    self._rows('num_samples', request.num_samples, not beams, e.most_samples)
    for name, neutral in (('length_penalty', 1.0), ('early_stopping', False)):
      value = getattr(request, name)
      # Clients of other servers send the neutral values with samples, too.
      allowed = e.search != 'pax' if beams else value == neutral
      if value is not None and not allowed:
        what = "Pax's beam search" if beams else 'sampling'
        raise ValueError(
          f'{name} is {value}, but {what}, which this request uses, has no'
          ' such option. Leave it out.'
        )
    penalty = request.length_penalty
    if penalty is not None and not abs(penalty) <= _MOST_PENALTY:
      raise ValueError(
        f'length_penalty is {penalty}, but must be between -{_MOST_PENALTY}'
        f' and {_MOST_PENALTY}.'
      )
    stopping = request.early_stopping
    if stopping is not None and stopping not in (True, False, 'never'):
      raise ValueError(
        f"early_stopping is {stopping!r}, but must be True, False or 'never'."
      )

  def _rows(self, name: str, value: int | None, fits: bool, most: int) -> None:
    if value is None:
      return
    if not fits:
      raise ValueError(
        f'{name} is {value}, but this request uses the other kind of search.'
        ' Leave it out or set beam_search.'
      )
    if not 1 <= value <= most:
      raise ValueError(
        f"{name} is {value}, but must be between 1 and {most}, the engine's"
        ' limit. Request fewer or serve with more.'
      )

  def _logprobs(self, value: int | None) -> None:
    most = self.engine.max_logprobs
    if value is not None and not 0 <= value <= most:
      raise ValueError(
        f"logprobs is {value}, but must be between 0 and {most}, the engine's"
        ' max_logprobs (MAX_LOGPROBS). Request fewer or serve with more.'
      )

"""An engine for the scheduler that decodes with a praxis LanguageModel.

praxis' own decoder decodes the requests, at most one per slot. A batch starts
with the given requests and ends as a whole. Rows without a request decode a
prompt of one token, and their answers are discarded.
"""

from collections.abc import Callable, Mapping
import math
from typing import Any

import jax
import numpy as np

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.engine import request as request_lib
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import compat

compat.install_praxis()  # Must precede imports of praxis.

from praxis import base_layer
from praxis import decoder_hparams
from praxis import py_utils
from praxis.layers import models

# praxis fills up its beams with hypotheses that score far below any real one.
_FILLER = -1e6

# The options that a request may set in the engine, but not in praxis' decoder.
_NOT_BY_REQUEST = (
  'num_beams',
  'length_penalty',
  'early_stopping',
  'num_samples',
  'logprobs',
)


class PraxisRunner:
  """Decodes up to `num_slots` requests from beginning to end.

  Attributes:
    num_slots: The number of rows of a batch.
  """

  def __init__(
    self,
    model: models.LanguageModel,
    variables: Mapping[str, Any],
    settings: settings_lib.Settings,
    decoder: decoder_hparams.DecoderHParams,
  ):
    """Creates an engine without compiling.

    Args:
      model: The model of a task.
      variables: The variables for `model.apply`.
      settings: The settings of the model, including its limits.
      decoder: The decoder's params for `decode_with_params`, from these
        settings.

    Raises:
      errors.Unimplemented: praxis' decoder does not support the settings.
    """
    self._samples = isinstance(decoder, decoder_hparams.SampleDecoderHParams)
    if self._samples and settings.engine.min_new_tokens:
      raise errors.Unimplemented(
        f'MIN_DECODE_STEPS={settings.engine.min_new_tokens} is not supported'
        ' with samples, because praxis has it only for beams. Set it to 0.'
      )
    engine = settings.engine
    if engine.embedding is not None or engine.gradients:
      raise errors.Unimplemented(
        'experiments do not support embeddings and gradients. Publish without'
        ' TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME and'
        ' GRADIENT_WRT_INPUT_TENSOR_NAMES.'
      )
    self.num_slots = settings.engine.num_slots
    self._settings = settings
    self._vocab_size = model.lm_tpl.vocab_size
    self._variables = jax.tree.map(jax.numpy.asarray, variables)
    self._requests: dict[int, request_lib.Request] = {}
    # praxis only reports whole answers.
    self.progress: Mapping[int, request_lib.Progress] = {}
    self.interruptible = False
    self._decode = jax.jit(_decode_fn(model, decoder))
    self._xent = jax.jit(_xent_fn(model))

  def warm_up(self, progress: Callable[[str], None] = lambda _: None) -> None:
    """Compiles all programs that requests will run."""
    methods = self._settings.methods
    if 'lm.generate' in methods:
      for length in self._settings.engine.prompt_buckets:
        self._run({0: request_lib.Request(np.zeros(length, np.int32))})
        progress(f'compiled decoding for prompts of {length} tokens')
    if 'lm.score' in methods:
      self.score(np.zeros(1, np.int32), np.zeros(1, np.int32))
      progress('compiled scoring')

  def check(self, request: request_lib.Request) -> None:
    """Raises ValueError if praxis' decoder does not support a request."""
    engine = self._settings.engine
    tokens = np.asarray(request.tokens)
    if not 0 < len(tokens) <= engine.max_prompt:
      raise ValueError(
        f'the prompt has {len(tokens)} tokens, not 1 to {engine.max_prompt}.'
        ' Shorten it, or publish with a larger INPUT_SEQ_LEN.'
      )
    if tokens.min() < 0 or tokens.max() >= self._vocab_size:
      raise ValueError(
        f'the prompt has tokens from {tokens.min()} to {tokens.max()}, but the'
        f' vocabulary has 0 to {self._vocab_size - 1}. Encode it with the'
        " model's own tokenizer."
      )
    if request.stop_ids not in (None, self._settings.end_ids):
      raise ValueError(
        f'stop ids {list(request.stop_ids)} differ from the stop ids with'
        ' which the model was published. praxis supports only those.'
      )
    steps = request.max_new_tokens
    if steps is not None and not 1 <= steps <= engine.max_new_tokens:
      raise ValueError(
        f'max_new_tokens is {steps}, not 1 to {engine.max_new_tokens}. Request'
        ' fewer, or publish with a larger MAX_DECODE_STEPS.'
      )
    if not self._samples and steps not in (None, engine.max_new_tokens):
      raise ValueError(
        f'max_new_tokens is {steps}, but praxis only searches beams of'
        f' {engine.max_new_tokens} tokens. Leave it out.'
      )
    temperature = request.temperature or 0
    if not 0 <= temperature < math.inf:
      raise ValueError(
        f'temperature is {temperature}, but must be finite and at least 0,'
        ' which selects the likeliest token'
      )
    if request.top_p is not None and not 0 < request.top_p <= 1:
      raise ValueError(
        f'top_p is {request.top_p}, but must be above 0 and at most 1, which'
        ' samples from all tokens'
      )
    if request.top_k is not None and request.top_k < (
      1 if engine.max_top_k else 0
    ):
      raise ValueError(f'top_k is {request.top_k}, below 1. Leave it out.')
    for name in _NOT_BY_REQUEST:
      if getattr(request, name) is not None:
        raise ValueError(
          f'{name} is {getattr(request, name)}, but praxis decodes only as the'
          ' model was published. Leave it out.'
        )
    if request.beam_search not in (None, not self._samples):
      raise ValueError(
        f'beam_search is {request.beam_search}, but praxis decodes only as the'
        ' model was published. Leave it out.'
      )

  def interrupt(self) -> None:
    """Does nothing, because praxis decodes an answer at once."""

  def prefill_and_insert(
    self, requests: Mapping[int, request_lib.Request]
  ) -> None:
    """Stores requests for the next batch, which the next step() decodes."""
    self._requests.update(requests)

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    """Decodes the stored requests to their ends; ignores `max_steps`."""
    del max_steps
    requests, self._requests = self._requests, {}
    return self._run(requests)

  def release(self, slot: int) -> None:
    """Drops a request that was cancelled."""
    self._requests.pop(slot, None)

  def score(self, prefix: np.ndarray, suffix: np.ndarray) -> float:
    """Returns the sum of log p(suffix | prefix), from praxis' cross entropies.

    Raises:
      ValueError: The prefix or the suffix is empty, or they are too long.
    """
    length = self._settings.engine.max_prompt + (self._settings.max_suffix or 0)
    total = len(prefix) + len(suffix)
    if not len(prefix) or not len(suffix) or total > length:
      raise ValueError(
        f'prefix and suffix have {len(prefix)} and {len(suffix)} tokens, but'
        f' must have at least one each and at most {length} together'
      )
    tokens = np.zeros(length + 1, np.int32)
    tokens[:total] = np.concatenate([prefix, suffix])
    index = np.arange(length)
    scored = (index >= len(prefix) - 1) & (index < total - 1)
    batch = _batch(
      tokens[None, :-1],
      np.array([total - 1]),
      labels=tokens[None, 1:],
      weights=scored[None].astype(np.float32),
    )
    xent = np.asarray(self._xent(self._variables, batch))
    return -float(xent.reshape(-1)[scored].sum(dtype=np.float64))

  def _run(
    self, requests: Mapping[int, request_lib.Request]
  ) -> dict[int, request_lib.Result]:
    if not requests:
      return {}
    longest = max(len(request.tokens) for request in requests.values())
    bucket = next(
      b for b in self._settings.engine.prompt_buckets if b >= longest
    )
    ids = np.zeros((self.num_slots, bucket), np.int32)
    lengths = np.ones(self.num_slots, np.int32)
    for slot, request in requests.items():
      lengths[slot] = len(request.tokens)
      ids[slot, : lengths[slot]] = request.tokens
    batch = _batch(ids, lengths, **self._choices(requests))
    # praxis' samplers only support raw keys.
    key = jax.random.PRNGKey(request_options.draw_seed())
    outputs = jax.device_get(self._decode(self._variables, batch, key))
    return {
      slot: _result(lengths[slot], *(output[slot] for output in outputs))
      for slot in requests
    }

  def _choices(
    self, requests: Mapping[int, request_lib.Request]
  ) -> dict[str, np.ndarray]:
    """Returns the requests' sampling options by praxis' names, [slots] each."""
    if not self._samples:
      return {}
    engine = self._settings.engine
    defaults = {
      'temperature': (engine.temperature, np.float32),
      'max_new_tokens': (engine.max_new_tokens, np.int32),
      'top_p': (1.0, np.float32),
    }
    if engine.max_top_k:
      defaults['top_k'] = (engine.max_top_k, np.int32)
    seeds = np.zeros(self.num_slots, np.uint32)
    choices = {request_options.BY_ENGINE['seed'].extra_input: seeds}
    for field, (default, dtype) in defaults.items():
      name = request_options.BY_ENGINE[field].extra_input
      choices[name] = np.full(self.num_slots, default, dtype)
      for slot, request in requests.items():
        if (given := getattr(request, field)) is not None:
          choices[name][slot] = given
    for slot, request in requests.items():
      given = request.seed
      seeds[slot] = (
        request_options.draw_seed() if given is None else given % 2**32
      )
    return choices


def _batch(
  ids: np.ndarray, lengths: np.ndarray, **more: np.ndarray
) -> py_utils.NestedMap:
  """Returns a batch [B, T] whose rows have `lengths` [B] tokens."""
  position = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
  real = position < lengths[:, None]
  return py_utils.NestedMap(
    ids=ids,
    paddings=1 - real.astype(np.float32),
    segment_ids=real.astype(np.int32),
    segment_pos=position,
    inputs_indicator=real.astype(np.int32),
    **more,
  )


def _decode_fn(
  model: models.LanguageModel, decoder: decoder_hparams.DecoderHParams
) -> Callable[..., tuple[jax.Array, ...]]:
  """Returns a function that decodes, given variables, a batch and a key.

  It returns ids and their log-probabilities [B, K, T], including the prompts,
  and lengths and scores [B, K]. Scores are nan if praxis returns none.
  """

  def decode(variables, batch, key):
    with _context():
      (_, result, _), _ = model.apply(
        variables,
        batch,
        method=lambda m, batch: m.decode_with_params(decoder, batch),
        mutable=[base_layer.DECODE_CACHE],
        rngs={base_layer.RANDOM: key},
      )
    rows = batch.ids.shape[0]
    lengths = result.decode_lengths.reshape(rows, -1)
    scores = result.get('scores', jax.numpy.full(lengths.shape, math.nan))
    return (
      result.output_ids.reshape(*lengths.shape, -1),
      result.logprobs.reshape(*lengths.shape, -1),
      lengths,
      scores.reshape(lengths.shape),
    )

  return decode


def _xent_fn(model: models.LanguageModel) -> Callable[..., jax.Array]:
  """Returns a function from variables and batch to cross entropies [B, T]."""

  def xent(variables, batch):
    with _context():
      predictions = model.apply(
        variables, batch, method=lambda m, batch: m.compute_predictions(batch)
      )
    return predictions.per_example_xent

  return xent


def _context():
  hparams = base_layer.JaxContext.HParams(do_eval=True)
  return base_layer.JaxContext.new_context(hparams=hparams)


def _result(
  prompt: int,
  ids: np.ndarray,
  logprobs: np.ndarray,
  lengths: np.ndarray,
  scores: np.ndarray,
) -> request_lib.Result:
  """Returns the result of a request from arrays [K, ...], see `_decode_fn`."""
  hypotheses = []
  for row, end, logprob, score in zip(ids, lengths, logprobs, scores):
    total = float(logprob[prompt:end].sum(dtype=np.float64))
    hypotheses.append(
      request_lib.Hypothesis(
        tokens=row[prompt:end],
        score=total if math.isnan(score) else float(score),
        logprob=total,
      )
    )
  # If no beam could end, all hypotheses are fillers. Then praxis' answer is
  # used.
  ended = [h for h in hypotheses if h.score > _FILLER]
  return request_lib.Result(tuple(ended or hypotheses))

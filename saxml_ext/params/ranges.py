"""Refuses serving params with sizes that no engine could be built with."""

from collections.abc import Sequence
import math

from saxml_ext.common import errors
from saxml_ext.common import request_options
from saxml_ext.params import template

# Of the model; None is left to the checkpoint.
_SIZES = (
  'NUM_LAYERS',
  'MODEL_DIMS',
  'HIDDEN_DIMS',
  'NUM_HEADS',
  'DIMS_PER_HEAD',
  'VOCAB_SIZE',
)


def check(params: type[template.ServableLMParams]) -> None:
  """Checks numbers, lists of numbers and what they sum up to.

  Raises:
    errors.InvalidArgument: an attribute is out of range or contradicts another.
  """
  _check_least(params)
  _check_finite(params)
  _check_caps(params)
  _check_lengths(params)
  _check_buckets(params)
  _check_mesh(params)
  _check_stop_ids(params)


def _check_least(params: type[template.ServableLMParams]) -> None:
  per_beam = 1 if params.TOKENS_PER_BEAM is None else params.TOKENS_PER_BEAM
  rows = ['BEAM_SIZE' if params.USE_BEAM_SEARCH else 'NUM_SAMPLES']
  if params.MIXED_SEARCH:
    rows = ['BEAM_SIZE', 'NUM_SAMPLES']
  least = {
    'BATCH_SIZE': (template.slots(params), 1),
    'MAX_LIVE_BATCHES': (params.MAX_LIVE_BATCHES, 1),
    'INPUT_SEQ_LEN': (params.INPUT_SEQ_LEN, 1),
    'MAX_DECODE_STEPS': (template.largest(params.MAX_DECODE_STEPS), 1),
    'MIN_DECODE_STEPS': (params.MIN_DECODE_STEPS, 0),
    'SUFFIX_SEQ_LEN': (params.SUFFIX_SEQ_LEN, 0),
    'BATCH_WAIT_SECS': (params.BATCH_WAIT_SECS or 0, 0),
    **{name: (getattr(params, name), 1) for name in rows},
    'MAX_LOGPROBS': (params.MAX_LOGPROBS, 0),
    'TOP_K': (params.TOP_K, 0),
    'TEMPERATURE': (params.TEMPERATURE, 0),
    'PREFILL_CHUNK_LEN': (params.PREFILL_CHUNK_LEN, 0),
    'TOKENS_PER_BEAM': (per_beam, 1),
    'STREAM_INTERVAL_STEPS': (params.STREAM_INTERVAL_STEPS, 1),
  }
  for name in _SIZES:
    if (size := getattr(params, name)) is not None:
      least[name] = (size, 1)
  for name, (value, bound) in least.items():
    if value < bound:
      raise errors.InvalidArgument(
        f'{params.__name__}.{name} is {value}, but must be at least {bound}'
      )


def _check_finite(params: type[template.ServableLMParams]) -> None:
  for name in (
    'BATCH_WAIT_SECS',
    'LENGTH_PENALTY',
    'LENGTH_NORM_ALPHA',
    'TEMPERATURE',
  ):
    value = getattr(params, name)
    if value is not None and not math.isfinite(value):
      raise errors.InvalidArgument(
        f'{params.__name__}.{name} is {value}, but must be finite'
      )


def _check_caps(params: type[template.ServableLMParams]) -> None:
  for name in ('ATTEN_LOGIT_CAP', 'SOFTMAX_CAP_LOGITS'):
    value = getattr(params, name)
    if value is not None and not 0 < value < math.inf:
      raise errors.InvalidArgument(
        f'{params.__name__}.{name} is {value}, but must be above 0 and finite,'
        ' or None for no cap'
      )


def _check_lengths(params: type[template.ServableLMParams]) -> None:
  max_new = template.largest(params.MAX_DECODE_STEPS)
  total = params.INPUT_SEQ_LEN + max_new
  for name in ('MAX_SEQ_LEN', 'MAX_POSITION_EMBEDDINGS'):
    bound = getattr(params, name)
    if bound is not None and total > bound:
      raise errors.InvalidArgument(
        f'{params.__name__}: INPUT_SEQ_LEN={params.INPUT_SEQ_LEN} plus'
        f' MAX_DECODE_STEPS={max_new} is {total}, above {name}={bound}:'
        ' lower one of the former'
      )


def _check_buckets(params: type[template.ServableLMParams]) -> None:
  keys: Sequence[int] = sorted(set(params.BUCKET_KEYS or ()))
  if keys and (keys[0] < 1 or keys[-1] > params.INPUT_SEQ_LEN):
    raise errors.InvalidArgument(
      f'{params.__name__}.BUCKET_KEYS={keys} must lie between 1 and'
      f' INPUT_SEQ_LEN={params.INPUT_SEQ_LEN}'
    )


def _check_mesh(params: type[template.ServableLMParams]) -> None:
  shape = list(params.ICI_MESH_SHAPE)
  if len(shape) != 3 or min(shape) < 1:
    raise errors.InvalidArgument(
      f'{params.__name__}.ICI_MESH_SHAPE is {shape}, but must be three sizes'
      ' of at least 1: [replica, data, model]'
    )


def _check_stop_ids(params: type[template.ServableLMParams]) -> None:
  default = params.EXTRA_INPUTS.get(request_options.STOP_IDS_KEY, ())
  if not isinstance(default, (list, tuple)):
    raise errors.InvalidArgument(
      f'{params.__name__}: the default of {request_options.STOP_IDS_KEY} in'
      f' EXTRA_INPUTS is {default!r}, but must be a list, as long as a request'
      ' may have stop ids and filled up with 0 in front'
    )

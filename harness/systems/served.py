"""What a published model computes with."""

from collections.abc import Collection, Mapping
import dataclasses
import json
from typing import Any

from harness.loadgen import target as target_lib
from harness.rules import requirements
from saxml_ext.client import sax
from saxml_ext.common import errors
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import registry
from saxml_ext.params import template

_ANSWER_SECS = 60.0

# Attributes of serving params that choose number formats.
_NUMBER_FORMATS = (
  'FPROP_DTYPE',
  'KV_CACHE_DTYPE',
  'MODEL_DTYPE',
  'QUANTIZATION',
  'QUANTIZE_SOFTMAX',
)

# The search of the benchmark's reference, by attribute of serving params.
_REFERENCE_SEARCH = {
  'USE_BEAM_SEARCH': True,
  'BEAM_SIZE': requirements.BEAM_SIZE,
  'MIN_DECODE_STEPS': requirements.MIN_NEW_TOKENS,
  'MAX_DECODE_STEPS': requirements.MAX_NEW_TOKENS,
}


@dataclasses.dataclass(frozen=True)
class Served:
  """What a model is published as.

  Attributes:
    params: name of its serving params.
    overrides: attribute of those params -> value as JSON.
    groups: hosts of each replica that is a group, as `results.nodes` has them.
    checkpoint: path of the checkpoint; '' if it is not known.
    replicas: servers that serve the model.
  """

  params: str
  overrides: Mapping[str, str]
  groups: tuple[tuple[str, ...], ...] = ()
  checkpoint: str = ''
  replicas: int = 1

  @property
  def is_float32(self) -> bool:
    """Whether it computes in float32; see `in_float32`."""
    return in_float32(self.params, self.overrides)

  @property
  def slots(self) -> int:
    """Requests that all replicas decode together; 0 if it is not known."""
    try:
      own = self._attribute('NUM_CACHE_SLOTS')
      slots = own or template.largest(self._attribute('BATCH_SIZE') or 0)
      return int(slots) * self.replicas
    except (TypeError, ValueError):
      return 0  # The model server refuses such an override.

  @property
  def max_input_length(self) -> int | None:
    """Longest prompt in tokens that the params take; None: not known."""
    return self._attribute('INPUT_SEQ_LEN')

  @property
  def other_search(self) -> str:
    """How the search differs from the reference's; '' if it does not."""
    differences = []
    for name, expected in _REFERENCE_SEARCH.items():
      value = self._attribute(name)
      if isinstance(value, list):
        value = max(value, default=None)
      if value is not None and value != expected:
        differences.append(f'{name}={value} (reference: {expected})')
    return ', '.join(differences)

  def _attribute(self, name: str) -> Any:
    """Returns an attribute of the params; None if they are not known here."""
    if name in self.overrides:
      try:
        return json.loads(self.overrides[name])
      except ValueError:
        return None  # The model server refuses it.
    try:
      return getattr(registry.lookup(self.params), name, None)
    except errors.InvalidArgument:
      return None  # Params of another server.


def ask(target: target_lib.Target) -> Served:
  """What the admin server says of a model.

  Raises:
    errors.SaxError: the admin server does not tell.
  """
  sax.SetRoot(target.sax_root)
  options = sax.AdminOptions(_ANSWER_SECS)
  try:
    detail = sax.ListDetail(target.model_id, options)
  except errors.NotFound as error:
    raise errors.NotFound(
      f'no model {target.model_id} is published in the cell at'
      f' {target.sax_root}: publish it, or correct --model_path; `saxutil ls'
      f' {target.model_id.rpartition("/")[0]}` lists the models'
    ) from error
  groups = tuple(each.hosts for each in detail.replicas if each.hosts)
  return Served(
    detail.model,
    dict(detail.overrides),
    groups,
    detail.ckpt,
    max(1, detail.active_replicas),
  )


def in_float32(params: str, overrides: Collection[str]) -> bool:
  """Whether serving params compute in float32, as their name says.

  Names of serving params say their number format: TinyTokenizedFP32,
  GPTJ4TokenizedBF16BS32, GPTJ4TokenizedINT8BS32XLA. An override of a format
  makes it another model, which this does not judge: False.

  Args:
    params: their name.
    overrides: names of attributes that differ.
  """
  name = params.rpartition('.')[2]
  return 'FP32' in name and not set(_NUMBER_FORMATS) & set(overrides)

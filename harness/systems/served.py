"""Describes a published model: its params, search and number format."""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from harness.benchmarks import benchmark as benchmark_lib
from saxml_ext.client import sax
from saxml_ext.common import errors
from saxml_ext.params import all_params  # noqa: F401 Registers them.
from saxml_ext.params import registry
from saxml_ext.params import template

_ANSWER_SECS = 60.0

# The number formats of the reference, by attribute of serving params.
_FLOAT32 = {
  'MODEL_DTYPE': ('float32',),
  'FPROP_DTYPE': ('float32',),
  'KV_CACHE_DTYPE': (None, 'float32'),
  'QUANTIZATION': ('none',),
}


@dataclasses.dataclass(frozen=True)
class Served:
  """The description of a published model.

  Attributes:
    params: The name of its serving params.
    overrides: The JSON values of changed attributes, by name of the attribute.
    groups: The hosts of each replica that is a group, as in `results.nodes`.
    checkpoint: The path of the checkpoint; '' if it is unknown.
    replicas: The number of servers that serve the model.
  """

  params: str
  overrides: Mapping[str, str]
  groups: tuple[tuple[str, ...], ...] = ()
  checkpoint: str = ''
  replicas: int = 1

  @property
  def is_float32(self) -> bool:
    """True if all numbers are float32; False if the params are unknown."""
    return self._params is not None and all(
      self._attribute(name) in formats for name, formats in _FLOAT32.items()
    )

  @property
  def slots(self) -> int:
    """The number of requests that all replicas decode together; 0: unknown."""
    try:
      own = self._attribute('NUM_CACHE_SLOTS')
      slots = own or template.largest(self._attribute('BATCH_SIZE') or 0)
      return int(slots) * self.replicas
    except (TypeError, ValueError):
      return 0  # The model server rejects the override.

  @property
  def max_input_length(self) -> int | None:
    """The longest prompt in tokens that the params take; None: unknown."""
    return self._attribute('INPUT_SEQ_LEN')

  @property
  def streams(self) -> bool | None:
    """True if it streams answers; None if the params are unknown."""
    return self._attribute('ENABLE_GENERATE_STREAM')

  @property
  def end_ids(self) -> tuple[int, ...]:
    """The ids that end an answer by the params; () if these have none."""
    stops, eos = map(self._attribute, ('STOP_TOKEN_IDS', 'EOS_ID'))
    # The model server rejects other types.
    if isinstance(stops, list | tuple) and stops:
      return tuple(stops)
    return (eos,) if isinstance(eos, int) else ()

  def other_search(self, search: benchmark_lib.Search) -> str:
    """Returns the difference from the search of the reference, or ''."""
    differences = []
    for name, expected in search.attributes.items():
      value = self._attribute(name)
      if isinstance(value, list):
        value = max(value, default=None)
      if value is not None and value != expected:
        differences.append(f'{name}={value} (reference: {expected})')
    return ', '.join(differences)

  @property
  def _params(self) -> type | None:
    """The class of the params; None if they are from another server."""
    try:
      return registry.lookup(self.params)
    except errors.InvalidArgument:
      return None

  def _attribute(self, name: str) -> Any:
    """Returns an attribute of the params; None if they are unknown."""
    if name not in self.overrides:
      return getattr(self._params, name, None)
    try:
      return json.loads(self.overrides[name])
    except ValueError:
      # The value is text without JSON quotes, which is valid if the attribute
      # is a text.
      return self.overrides[name]


def ask(model_id: str, sax_root: str) -> Served:
  """Requests the description of a published model from the admin server.

  Args:
    model_id: The id of the model, /sax/<cell>/<model>.
    sax_root: The root directory of the cell's files.

  Raises:
    errors.SaxError: The admin server does not answer, or the model is not
    published.
  """
  sax.SetRoot(sax_root)
  try:
    detail = sax.ListDetail(model_id, sax.AdminOptions(_ANSWER_SECS))
  except errors.NotFound as error:
    raise errors.NotFound(
      f'no model {model_id} is published in the cell at {sax_root}. Publish'
      ' it, or correct --model_path. `saxutil ls'
      f' {model_id.rpartition("/")[0]}` lists the models'
    ) from error
  return Served(
    detail.model,
    dict(detail.overrides),
    tuple(replica.hosts for replica in detail.replicas if replica.hosts),
    detail.ckpt,
    max(1, detail.active_replicas),
  )

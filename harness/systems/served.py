"""What a published model computes with."""

from collections.abc import Collection, Mapping
import dataclasses

from harness.systems import target as target_lib
from saxml_ext.client import sax

_ANSWER_SECS = 60.0

# Attributes of serving params that choose number formats.
_NUMBER_FORMATS = (
  'FPROP_DTYPE',
  'KV_CACHE_DTYPE',
  'MODEL_DTYPE',
  'QUANTIZATION',
  'QUANTIZE_SOFTMAX',
)


@dataclasses.dataclass(frozen=True)
class Served:
  """What a model is published as.

  Attributes:
    params: name of its serving params.
    overrides: attribute of those params -> value as JSON.
    groups: hosts of each replica that is a group, as `results.nodes` has them.
  """

  params: str
  overrides: Mapping[str, str]
  groups: tuple[tuple[str, ...], ...] = ()

  @property
  def is_float32(self) -> bool:
    """Whether it computes in float32; see `in_float32`."""
    return in_float32(self.params, self.overrides)


def ask(target: target_lib.Target) -> Served:
  """What the admin server says of a model.

  Raises:
    errors.SaxError: the admin server does not tell.
  """
  sax.SetRoot(target.sax_root)
  detail = sax.ListDetail(target.model_id, sax.AdminOptions(_ANSWER_SECS))
  groups = tuple(each.hosts for each in detail.replicas if each.hosts)
  return Served(detail.model, dict(detail.overrides), groups)


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

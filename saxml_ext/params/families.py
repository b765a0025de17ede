"""From serving params to what their family of models computes."""

from collections.abc import Mapping
import dataclasses

from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.params import template


@dataclasses.dataclass(frozen=True)
class Family:
  """A family of models, as a checkpoint cannot tell it.

  Attributes:
    architecture: what the engine computes.
    ln_direct_scale: whether a checkpoint stores a layer norm's scale itself;
      else, as praxis does by default, scale - 1.
  """

  architecture: architecture_lib.Architecture
  ln_direct_scale: bool


# By ARCHITECTURE.
FAMILIES: Mapping[str, Family] = {
  'gptj': Family(architecture_lib.GPTJ, ln_direct_scale=True),
  'lm_cloud': Family(architecture_lib.LM_CLOUD, ln_direct_scale=False),
}


def of(params: type[template.ServableLMParams]) -> Family:
  """Returns the family that `params` name, with their own caps.

  Args:
    params: a class that `support.check` lets pass.

  Raises:
    ValueError: a cap is not above 0.
  """
  family = FAMILIES[params.ARCHITECTURE]
  architecture = dataclasses.replace(
    family.architecture,
    attention_cap=params.ATTEN_LOGIT_CAP,
    logit_cap=params.SOFTMAX_CAP_LOGITS,
  )
  return dataclasses.replace(family, architecture=architecture)

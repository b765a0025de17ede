"""From serving params to what their family of models computes."""

import dataclasses

from saxml_ext.families import all as families
from saxml_ext.families import family as family_lib
from saxml_ext.params import template

# By ARCHITECTURE.
FAMILIES = families.FAMILIES


def of(params: type[template.ServableLMParams]) -> family_lib.Family:
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

"""Lists all families of models by name."""

from collections.abc import Mapping
from typing import Any

from saxml_ext.families import family
from saxml_ext.families import gemma
from saxml_ext.families import gptj
from saxml_ext.families import granite
from saxml_ext.families import llama
from saxml_ext.families import lm_cloud
from saxml_ext.families import mistral
from saxml_ext.families import neox
from saxml_ext.families import olmo2
from saxml_ext.families import phi3
from saxml_ext.families import qwen2
from saxml_ext.families import qwen3
from saxml_ext.families import smollm3
from saxml_ext.pax import errors

FAMILIES: Mapping[str, family.Family] = {
  member.name: member
  for member in (
    gptj.FAMILY,
    lm_cloud.FAMILY,
    llama.FAMILY,
    neox.FAMILY,
    *neox.VARIANTS,
    qwen2.FAMILY,
    mistral.FAMILY,
    qwen3.FAMILY,
    phi3.FAMILY,
    granite.FAMILY,
    smollm3.FAMILY,
    olmo2.FAMILY,
    gemma.FAMILY,
  )
}


def named(name: str | None) -> family.Family:
  """Returns the family with a name.

  Args:
    name: The name in a checkpoint. Checkpoints of GPT-J have None.

  Raises:
    errors.CheckpointError: The family is unknown.
  """
  result = FAMILIES.get(name or gptj.FAMILY.name)
  if result is None:
    known = ', '.join(convertible())
    raise errors.CheckpointError(
      f'the model family {name!r} is unknown. Available: {known}.'
    )
  return result


def matching(document: Mapping[str, Any]) -> family.Family | None:
  """Returns the family of a Hugging Face model, or None if it is unknown.

  Args:
    document: The contents of its config.json. If none of the families with its
      `model_type` has its settings, the first of them is returned.
  """
  name = document.get('model_type')
  candidates = [f for f in FAMILIES.values() if f.config and _type(f) == name]
  variants = (
    f for f in candidates if f.config and f.config.is_variant(document)
  )
  return next(variants, candidates[0] if candidates else None)


def model_types() -> list[str]:
  """Returns the sorted values of `model_type` that can be converted."""
  return sorted({_type(f) for f in FAMILIES.values() if f.config})


def _type(member: family.Family) -> str:
  return (member.config and member.config.model_type) or member.name


def convertible() -> list[str]:
  """Returns the sorted names of the families with a Hugging Face format."""
  return sorted(name for name, f in FAMILIES.items() if f.config)

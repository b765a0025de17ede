"""Lists all families of models by name."""

from collections.abc import Mapping

from saxml_ext.families import family
from saxml_ext.families import gptj
from saxml_ext.families import llama
from saxml_ext.families import lm_cloud
from saxml_ext.families import neox
from saxml_ext.families import qwen2
from saxml_ext.pax import errors

FAMILIES: Mapping[str, family.Family] = {
  each.FAMILY.name: each.FAMILY for each in (gptj, lm_cloud, llama, neox, qwen2)
}


def named(name: str | None) -> family.Family:
  """Returns the family with a name.

  Args:
    name: The name in a checkpoint. Checkpoints of GPT-J have None.

  Raises:
    errors.CheckpointError: The family is unknown.
  """
  found = FAMILIES.get(name or gptj.FAMILY.name)
  if found is None:
    known = ', '.join(convertible())
    raise errors.CheckpointError(
      f'the model family {name!r} is unknown. Available: {known}.'
    )
  return found


def convertible() -> list[str]:
  """Returns the sorted names of the families with a Hugging Face format."""
  return sorted(name for name, f in FAMILIES.items() if f.config)

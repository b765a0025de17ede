"""All families of models, by name."""

from collections.abc import Mapping

from saxml_ext.families import family
from saxml_ext.families import gptj
from saxml_ext.families import lm_cloud
from saxml_ext.families import neox

FAMILIES: Mapping[str, family.Family] = {
  each.FAMILY.name: each.FAMILY for each in (gptj, lm_cloud, neox)
}


def convertible() -> list[str]:
  """Returns the names of the families that come from Hugging Face, sorted."""
  return sorted(name for name, f in FAMILIES.items() if f.read_config)

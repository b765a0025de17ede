"""Registers the serving params of all families when it is imported."""

from saxml_ext.families import all as families
from saxml_ext.params import registry

for _family in families.FAMILIES.values():
  registry.register_table(_family.params)

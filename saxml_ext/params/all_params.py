"""Registers the serving params of all families when it is imported."""

from saxml_ext.families import all as families
from saxml_ext.params import classes

for _family in families.FAMILIES.values():
  classes.register(_family.params)

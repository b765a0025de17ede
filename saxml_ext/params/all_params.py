"""Registers all serving params when it is imported.

Each family has params for models of any size, which `//:serve` publishes with
overrides that fit the model. Those without a class of their own are made here.
"""

from saxml_ext.families import all as families
from saxml_ext.params import gptj
from saxml_ext.params import lm_cloud  # noqa: F401 Registers or sets up.
from saxml_ext.params import registry

for _family in families.FAMILIES.values():
  if _family.serving and _family.serving not in registry.names():
    _name = _family.serving.rpartition('.')[2]
    _docs = f'As AnyGPTJ, for a {_family.title} of any size.'
    registry.register(_family.serving)(
      type(
        _name,
        (gptj.AnyGPTJ,),
        {'ARCHITECTURE': _family.name, '__doc__': _docs},
      )
    )

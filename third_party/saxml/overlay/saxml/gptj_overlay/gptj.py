"""Imported by upstream's model server, registers our GPT-J serving params.

Every class that `saxml_ext.params.gptj` publishes under upstream's package is
registered here under the same name, also where upstream has one of that name.
"""

from saxml.gptj_overlay import servables
from saxml.server import servable_model_registry
from saxml_ext.params import gptj  # pylint: disable=unused-import
from saxml_ext.params import registry

PREFIX = 'saxml.server.pax.lm.params.gptj.'

for _name in registry.names():
  if _name.startswith(PREFIX):
    _servable = servables.of(_name, registry.lookup(_name))
    servables.warn_of_changes(_name, _servable)
    servable_model_registry.register(_servable)

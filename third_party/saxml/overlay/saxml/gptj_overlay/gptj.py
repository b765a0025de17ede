"""Imported by upstream's model server, registers our GPT-J serving params.

Every name of upstream's package under which `saxml_ext.params.published`
publishes a class is registered here, unless upstream has a class of that name:
then its own stays.
"""

from saxml.gptj_overlay import servables
from saxml.server import servable_model_registry  # type: ignore[attr-defined]

from saxml_ext.params import published  # noqa: F401 Registers or sets up.
from saxml_ext.params import registry

PACKAGE = 'saxml.server.pax.lm.params.'

for _name in registry.names():
  # `servables` imported upstream's module, so that its classes are known.
  if servable_model_registry.get(_name) is None and _name.startswith(PACKAGE):
    servable_model_registry.register(
      servables.of(_name, registry.lookup(_name))
    )

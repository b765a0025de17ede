"""Registers our GPT-J serving params in upstream's model server.

Upstream's server imports this module. It registers every name of upstream's
package under which `saxml_ext.params.published` publishes a class. If upstream
has a class of that name, that class stays.
"""

from saxml.gptj_overlay import servables
from saxml.server import servable_model_registry  # type: ignore[attr-defined]

from saxml_ext.params import published  # noqa: F401 Registers or sets up.
from saxml_ext.params import registry

PACKAGE = 'saxml.server.pax.lm.params.'

for _name in registry.names():
  # `servables` imported upstream's module, so upstream's classes are
  # registered.
  if servable_model_registry.get(_name) is None and _name.startswith(PACKAGE):
    servable_model_registry.register(
      servables.from_params(_name, registry.lookup(_name))
    )

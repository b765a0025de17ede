"""The classes of GPT-J's serving params, registered when this is imported.

`families/gptj.py` lists them, and `published` has their bases.
"""

from saxml_ext.families import gptj as gptj_family
from saxml_ext.params import published  # noqa: F401 Registers the bases.
from saxml_ext.params import registry

globals().update(registry.register_table(gptj_family.TABLE))

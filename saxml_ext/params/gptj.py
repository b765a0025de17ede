"""The classes of GPT-J's serving params; the import registers them.

`families/gptj.py` lists the classes, and `published` has their bases.
"""

from saxml_ext.families import gptj as gptj_family
from saxml_ext.params import published  # noqa: F401 Registers the bases.
from saxml_ext.params import registry

globals().update(registry.register_table(gptj_family.TABLE))

"""The classes of GPT-J's serving params that were published for Sax.

The import registers them. `families/gptj_published.py` lists the classes.
"""

from saxml_ext.families import gptj_published
from saxml_ext.params import registry

globals().update(registry.register_table(gptj_published.TABLE))

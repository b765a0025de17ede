"""The classes of GPT-J's serving params, registered when this is imported.

`families/gptj_serving.py` lists them, and `published` has their bases.
"""

from saxml_ext.families import gptj_serving
from saxml_ext.params import classes
from saxml_ext.params import published  # noqa: F401 Registers the bases.

globals().update(classes.register(gptj_serving.TABLE))

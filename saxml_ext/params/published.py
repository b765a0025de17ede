"""The classes of GPT-J's serving params that were published for Sax.

They are registered when this is imported; `families/gptj_published.py` lists
them.
"""

from saxml_ext.families import gptj_published
from saxml_ext.params import classes

globals().update(classes.register(gptj_published.TABLE))

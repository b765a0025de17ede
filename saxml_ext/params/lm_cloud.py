"""The classes of LmCloudSpmd's serving params; the import registers them.

`families/lm_cloud.py` lists the classes.
"""

from saxml_ext.families import lm_cloud
from saxml_ext.params import registry

SMALL_VOCABULARY = lm_cloud.SMALL_VOCABULARY

globals().update(registry.register_table(lm_cloud.TABLE))

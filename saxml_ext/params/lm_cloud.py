"""The classes of LmCloudSpmd's serving params, registered on import.

`families/lm_cloud.py` lists them.
"""

from saxml_ext.families import lm_cloud
from saxml_ext.params import registry

SMALL_VOCABULARY = lm_cloud.SMALL_VOCABULARY

globals().update(registry.register_table(lm_cloud.TABLE))

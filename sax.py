"""The Python client under the name of stock Sax's module.

    import sax

It is the same module as `saxml_ext.client.sax`.
"""

import sys

from saxml_ext.client import sax

sys.modules[__name__] = sax

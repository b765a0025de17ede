"""Short names of models, as people type them.

Where the environment variable SAX_CELL names a cell, "m" stands for
"/sax/<cell>/m".
"""

import os

from saxml_ext.common import cell as cell_lib


def default_cell() -> str:
  """The cell "/sax/<cell>" that SAX_CELL names; "" if it is not set."""
  return os.environ.get(cell_lib.CELL_VARIABLE, '').rstrip('/')


def complete(name: str) -> str:
  """The full id that a name stands for.

  Args:
    name: an id "/sax/...", which stays as it is, or a model's name without
      slashes.

  Returns:
    The id. It is not checked here, and a short name stays as it is if no cell
    is named.
  """
  cell = default_cell()
  return f'{cell}/{name}' if cell and name and '/' not in name else name

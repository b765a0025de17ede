"""Loads phrases from the TOML files next to the modules that use them."""

import pathlib
import tomllib
from typing import Any


def load(module: str, *names: str) -> dict[str, Any]:
  """Returns the tables of files in the folder `phrases` next to a module.

  Args:
    module: The module's `__file__`.
    *names: The names of the files without the extension, in the order of the
      tables.
  """
  folder = pathlib.Path(module).parent / 'phrases'
  tables: dict[str, Any] = {}
  for name in names:
    tables |= tomllib.loads((folder / f'{name}.toml').read_text('utf-8'))
  return tables

"""Reads phrases from the TOML files beside the modules that use them."""

import pathlib
import tomllib
from typing import Any


def load(module: str, *names: str) -> dict[str, Any]:
  """Returns the tables of files in the folder `phrases` beside a module.

  Args:
    module: The module's `__file__`.
    *names: The files' names without the ending, in the order of the tables.
  """
  folder = pathlib.Path(module).parent / 'phrases'
  tables: dict[str, Any] = {}
  for name in names:
    tables |= tomllib.loads((folder / f'{name}.toml').read_text('utf-8'))
  return tables

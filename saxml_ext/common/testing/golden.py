"""Loads recorded data for tests; see //tests/golden."""

import json
import pathlib
from typing import Any

_DIR = pathlib.Path(__file__).parents[3] / 'tests' / 'golden'


def load(name: str) -> Any:
  """Returns the contents of a recorded JSON file, such as "rpc_pairs.json"."""
  return json.loads((_DIR / name).read_text(encoding='utf-8'))

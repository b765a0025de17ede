"""Recorded data for tests; see //tests/golden."""

import json
import pathlib
from typing import Any

_DIR = pathlib.Path(__file__).parents[3] / 'tests' / 'golden'


def load(name: str) -> Any:
  """Content of a recorded JSON file, for example "rpc_pairs.json"."""
  return json.loads((_DIR / name).read_text(encoding='utf-8'))

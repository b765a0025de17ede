"""Handles the Hugging Face directory that every engine loads."""

import glob
import json
import os


def derived(cache: str, model: str, name: str) -> str:
  """Returns the path for files that an engine derives from `model`.

  The name depends on the size and the modification time of the weights. Other
  weights therefore get another path.

  Returns:
    A path in `cache`, which may not exist yet.
  """
  files = glob.glob(os.path.join(glob.escape(model), '*.safetensors'))
  weights = [os.stat(file) for file in files]
  size = sum(w.st_size for w in weights)
  latest = int(max(w.st_mtime for w in weights))
  base = os.path.basename(os.path.normpath(model))
  return os.path.join(cache, f'{base}-{size}-{latest}-{name}')


def read_config(model: str) -> dict:
  """Returns the config.json of the model."""
  with open(os.path.join(model, 'config.json'), encoding='utf-8') as file:
    return json.load(file)

"""The Hugging Face directory that every engine loads."""

import json
import os


def derived(cache: str, model: str, name: str) -> str:
  """Where an engine keeps what it made of `model`, made anew if stale.

  Returns:
    A path in `cache` that need not exist.
  """
  weights = os.stat(os.path.join(model, 'model.safetensors'))
  base = os.path.basename(os.path.normpath(model))
  return os.path.join(
    cache, f'{base}-{weights.st_size}-{int(weights.st_mtime)}-{name}'
  )


def read_config(model: str) -> dict:
  """The model's config.json."""
  with open(os.path.join(model, 'config.json'), encoding='utf-8') as file:
    return json.load(file)

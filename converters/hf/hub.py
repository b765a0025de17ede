"""Finds the local directory of a checkpoint by its Hugging Face id.

An id such as `EleutherAI/gpt-j-6b` is first searched in the local cache of
huggingface_hub (below HF_HOME or HF_HUB_CACHE). If it is missing there, it is
downloaded into the cache. Only config.json, the tokenizer and one format of
weights are downloaded. No code of a checkpoint is executed.
"""

from collections.abc import Sequence
import importlib
import logging
import os
import re
from typing import Any

from converters.hf import checkpoint
from converters.hf import tokenizer_files
from saxml_ext.common import user_path
from saxml_ext.pax import errors

# The organization and the model. Neither begins with a dot, unlike paths.
_ID = re.compile(r'[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*', re.ASCII)
_SMALL_FILES = ('config.json', *tokenizer_files.NAMES)
_TOKENIZERS = ('tokenizer.json', 'vocab.json', 'vocab.txt')
# An interactive user waits for the answer, so a slow hub counts as unreachable.
_TIMEOUT_SECS = 5.0
_SHARD = re.compile(r'(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)')


def locate(base: str, weights: bool = True) -> str:
  """Returns the local directory of a checkpoint, and downloads it if necessary.

  Args:
    base: A directory relative to the user's working directory, or the id of a
      model on the Hugging Face hub. An existing directory takes precedence.
    weights: False to download only config.json and the tokenizer.

  Raises:
    errors.CheckpointError: The id is not in the cache and cannot be downloaded.
  """
  hub = _hub_of(base)
  if hub is None:
    return user_path.resolve(base)
  return _cached(hub, base) or _download(hub, base, weights)


def has_weights(directory: str) -> bool:
  """Returns True if all files of weights are in a directory."""
  try:
    _, paths = checkpoint.weight_files(directory)
  except errors.CheckpointError:
    return False
  return all(map(os.path.exists, paths))


def locate_tokenizer(name: str) -> str:
  """Returns the local path of a tokenizer, and downloads it if necessary.

  Args:
    name: A path relative to the user's working directory, or the id of a model
      on the Hugging Face hub. An existing path takes precedence.

  Raises:
    ValueError: The id is not in the cache and cannot be downloaded.
  """
  hub = _hub_of(name)
  if hub is None:
    return user_path.resolve(name)
  for local in (True, False):
    try:
      directory = hub.snapshot_download(
        name,
        allow_patterns=[*_SMALL_FILES, 'vocab.txt'],
        local_files_only=local,
      )
    except (OSError, ValueError, hub.errors.HTTPError) as e:
      if not local:
        raise ValueError(
          f'--tokenizer_path={name} is neither a local path nor in the Hugging'
          f' Face cache, and cannot be downloaded ({_first_line(e)}). Correct'
          ' it, or copy tokenizer.json and pass its path.'
        ) from e
      continue
    if any(os.path.exists(os.path.join(directory, f)) for f in _TOKENIZERS):
      return directory
  raise ValueError(
    f'--tokenizer_path={name}: this model on the Hugging Face hub has none of'
    f' {", ".join(_TOKENIZERS)}. Pass the path of a tokenizer.'
  )


def _hub_of(name: str) -> Any:
  """Returns huggingface_hub if the name is a hub id, or None for a path."""
  if os.path.exists(user_path.resolve(name)) or not _ID.fullmatch(name):
    return None
  # The import is slow, and only this function needs it.
  hub = importlib.import_module('huggingface_hub')
  for part in ('constants', 'errors'):
    importlib.import_module(f'huggingface_hub.{part}')
  # This omits the message for each retry. The final error contains all details.
  logging.getLogger('huggingface_hub').setLevel(logging.ERROR)
  return hub


def _cached(hub, model_id: str) -> str | None:
  """Returns the cached snapshot, or None if it is missing or incomplete."""
  config = hub.try_to_load_from_cache(model_id, 'config.json')
  if not isinstance(config, str):  # None, or a missing-file marker.
    return None
  directory = os.path.dirname(config)
  return directory if has_weights(directory) else None


def _download(hub, model_id: str, weights: bool) -> str:
  try:
    # Unlike list_repo_files, this call is not repeated for half a minute if
    # there is no network.
    info = hub.HfApi().model_info(model_id, timeout=_TIMEOUT_SECS)
    needed = _needed([file.rfilename for file in info.siblings or ()])
    if not weights:
      needed = [name for name in needed if name in _SMALL_FILES]
    return hub.snapshot_download(model_id, allow_patterns=needed)
  except (hub.errors.RepositoryNotFoundError, hub.errors.GatedRepoError) as e:
    raise errors.CheckpointError(
      f'--base={model_id} is neither a local directory nor a model on the'
      f' Hugging Face hub that you may read ({_first_line(e)}). Correct the'
      ' name, or set HF_TOKEN if the model is private or gated.'
    ) from e
  except (OSError, ValueError, hub.errors.HTTPError) as e:
    raise errors.CheckpointError(
      f'--base={model_id} is neither a local directory nor complete in the'
      f' cache {hub.constants.HF_HUB_CACHE}, and the Hugging Face hub cannot'
      f' be reached ({_first_line(e)}). With a network, run the same command'
      f' again. Without one, run "hf download {model_id}" on a machine with a'
      ' network, copy the directory that it prints, and pass its path.'
    ) from e


def _needed(names: Sequence[str]) -> list[str]:
  """Returns the files of a model that a conversion reads."""
  needed = [name for name in _SMALL_FILES if name in names]
  for whole in checkpoint.WEIGHTS:
    index = f'{whole}.index.json'
    if whole in names:
      return [*needed, whole]
    if index in names:
      stem, _, suffix = whole.partition('.')
      shards = [
        name
        for name in names
        if (match := _SHARD.fullmatch(name))
        and match.groups() == (stem, suffix)
      ]
      return [*needed, index, *shards]
  # The list has no weights. Opening the directory later reports this error.
  return needed


def _first_line(error: Exception) -> str:
  text = str(error).strip().partition('\n')[0]
  return f'{type(error).__name__}: {text}'

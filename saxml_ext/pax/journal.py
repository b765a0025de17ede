"""What a writer of a checkpoint has finished, for the one that goes on.

One small file for each finished variable, beside the directory that is being
written:

  checkpoint_00000000.journal/
    source                    what the checkpoint is made of
    params.lm.final_ln.scale  shape, type and checksum, as in manifest.json, and
                            what the writer's user notes of it

A file, not a line of one: writing it is atomic on disks and in buckets alike,
so there is no torn entry, and buckets cannot append.
"""

import json
from typing import Any

from saxml_ext.common import storage
from saxml_ext.pax import errors
from saxml_ext.pax import manifest

_SOURCE = 'source'
_NOTE = 'note'


class Journal:
  """The journal of one checkpoint.

  Attributes:
    path: of its directory.
    entries: finished variables by name.
    notes: what `add` was given to keep with them, by name.
  """

  def __init__(self, path: str):
    self.path = path
    self.entries: dict[str, manifest.Entry] = {}
    self.notes: dict[str, Any] = {}

  def start(self, source: manifest.Source) -> None:
    """Begins anew; OSError and storage's errors if it cannot be written."""
    self.clear()
    storage.make_dirs(self.path)
    storage.write_bytes(f'{self.path}/{_SOURCE}', _encode(source))

  def load(self, source: manifest.Source) -> bool:
    """Reads what was finished; returns whether there is anything to resume.

    Raises:
      errors.CheckpointError: what is there was made of another source.
    """
    where = f'{self.path}/{_SOURCE}'
    if not storage.exists(where):
      return False
    if storage.read_bytes(where) != _encode(source):
      raise errors.CheckpointError(
        f'{self.path} is of another conversion: its source or options '
        'differ or were changed since; run again without --resume to start '
        'anew'
      )
    for name in storage.list_dir(self.path):
      if name != _SOURCE and name.startswith('params.'):
        data = storage.read_bytes(f'{self.path}/{name}')
        entry = _entry(data)
        if entry:
          self.entries[name] = entry
          self.notes[name] = json.loads(data).get(_NOTE)
    return True

  def add(self, name: str, entry: manifest.Entry, note: Any = None) -> None:
    """Says that a variable is finished; keeps a JSON value with it."""
    document = entry.document()
    if note is not None:
      document[_NOTE] = note
    data = json.dumps(document, sort_keys=True).encode('ascii')
    storage.write_bytes(f'{self.path}/{name}', data)
    self.entries[name] = entry
    self.notes[name] = note

  def clear(self) -> None:
    """Removes all of it."""
    storage.delete(self.path)
    self.entries.clear()
    self.notes.clear()


def _encode(source: manifest.Source) -> bytes:
  document = source.document() | {'stamp': source.stamp}
  return json.dumps(document, sort_keys=True).encode('ascii')


def _entry(data: bytes) -> manifest.Entry | None:
  """An entry; None if the file is damaged: its variable is then made again."""
  try:
    return manifest.entry_of(json.loads(data))
  except (ValueError, KeyError, TypeError):
    return None

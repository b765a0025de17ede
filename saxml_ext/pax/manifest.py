"""Reads and writes manifests and journals, which list a checkpoint's variables.

manifest.json is in the step directory next to the commit marker. paxml ignores
it:

  {
    "version": 1,
    "source": {"files": {"model.safetensors": "..."}, "options": {...}},
    "variables": {
      "params.lm.final_ln.scale":
          {"shape": [4096], "dtype": "float32", "bytes": 16384,
           "crc32": "0badcafe"}, ...
    }
  }

The same source gives the same bytes, so the file has no times and no paths.

`crc32` is the checksum of a variable's values in C order and little-endian. It
does not depend on chunks or compression. It detects damage, not forgery. On one
core of the development machine, zlib computes CRC-32 at 6.3 GB/s. SHA-256 runs
at 1.7 GB/s, and zstd, which also processes every byte, at 0.25 GB/s.

The journal lists the variables that a writer has finished, for the writer that
resumes its work. It is a directory next to the unfinished checkpoint:

  checkpoint_00000000.journal/
    source                    the source of the checkpoint
    params.lm.final_ln.scale  its entry of manifest.json, and the note of the
                              writer's caller

Each variable has its own file. Writing a file is atomic on disks and in
buckets, so no entry is incomplete. Buckets also cannot append to a file.
"""

from collections.abc import Iterable, Mapping
import contextlib
import dataclasses
import json
from typing import Annotated, Any, Literal
import zlib

import msgspec
import numpy as np

from saxml_ext.common import files
from saxml_ext.common import storage
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

FILE_NAME = 'manifest.json'
_VERSION = 1
_SOURCE = 'source'


@dataclasses.dataclass(frozen=True)
class Source:
  """The source of a checkpoint.

  Attributes:
    files: The fingerprint of each file by name.
    options: Other settings that determine the result, such as the type of the
      values.
    stamp: Additional data that changes with the source, such as times. It is
      not in the manifest.
  """

  files: Mapping[str, str]
  options: Mapping[str, Any]
  stamp: str = ''

  def document(self) -> dict[str, Any]:
    return {'files': dict(self.files), 'options': dict(self.options)}

  def _encode(self) -> bytes:
    """Returns the contents of the journal's `source` file."""
    document = self.document() | {'stamp': self.stamp}
    return json.dumps(document, sort_keys=True).encode('ascii')


@dataclasses.dataclass(frozen=True)
class Entry:
  """The shape, type and checksum of one variable."""

  shape: metadata.Shape
  dtype: str
  bytes: int
  crc32: Annotated[str, msgspec.Meta(pattern='^[0-9a-f]{8}$')]

  @classmethod
  def from_spec(cls, spec: metadata.ArraySpec, crc32: int) -> 'Entry':
    return cls(spec.shape, spec.dtype, spec.num_bytes, f'{crc32:08x}')

  @property
  def spec(self) -> metadata.ArraySpec:
    return metadata.ArraySpec(self.shape, self.dtype)


@dataclasses.dataclass(frozen=True)
class Finished:
  """A variable in the journal: its entry and the caller's note (JSON)."""

  entry: Entry
  note: Any = None


class _Manifest(msgspec.Struct):
  """The contents of manifest.json."""

  version: Literal[1]
  source: Any
  variables: dict[str, Entry]


def checksum(part: np.ndarray, previous: int = 0) -> int:
  """Returns the CRC-32 of an array's values.

  Args:
    part: The array.
    previous: The checksum of the preceding parts, which the result includes.
  """
  data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
  return zlib.crc32(data, previous)


def entry_of(
  spec: metadata.ArraySpec, parts: Iterable[tuple[int, np.ndarray]]
) -> Entry:
  """Returns the entry of a variable.

  Args:
    spec: The shape and the type of the variable.
    parts: The parts of the variable in order, each with its first row.
  """
  crc32 = 0
  for _, part in parts:
    crc32 = checksum(part, crc32)
  return Entry.from_spec(spec, crc32)


def encode(source: Source | None, entries: Mapping[str, Entry]) -> bytes:
  """Returns the bytes of manifest.json."""
  document = _Manifest(
    _VERSION, source.document() if source else None, dict(entries)
  )
  return files.encode_json(document, indent=1, sort_keys=True).encode('ascii')


def decode(data: bytes, where: str) -> tuple[Any, dict[str, Entry]]:
  """Returns the document of the source, and the entries by name.

  Args:
    data: The contents of manifest.json.
    where: The path of the file, for messages.

  Raises:
    errors.CheckpointError: The contents are not a manifest.
  """
  try:
    document = msgspec.json.decode(data, type=_Manifest)
  except (ValueError, RecursionError) as e:
    raise errors.CheckpointError(
      f'{where} is not a manifest of version {_VERSION}: {e}. {errors.AGAIN}'
    ) from e
  return document.source, document.variables


class Journal:
  """The journal of one checkpoint.

  Attributes:
    path: The path of its directory.
    finished: The finished variables by name.
  """

  def __init__(self, path: str):
    self.path = path
    self.finished: dict[str, Finished] = {}

  def start(self, source: Source) -> None:
    """Starts an empty journal.

    Args:
      source: The source of the checkpoint.

    Raises:
      OSError, errors.SaxError: The journal cannot be written.
    """
    self.clear()
    storage.make_dirs(self.path)
    storage.write_bytes(f'{self.path}/{_SOURCE}', source._encode())

  def load(self, source: Source) -> bool:
    """Reads the journal; returns True if there is work to resume.

    Args:
      source: The expected source.

    Raises:
      errors.CheckpointError: The journal belongs to another source.
    """
    where = f'{self.path}/{_SOURCE}'
    if not storage.exists(where):
      return False
    if storage.read_bytes(where) != source._encode():
      raise errors.CheckpointError(
        f'{self.path} belongs to another conversion: its source or options'
        ' differ, or have changed since. Run again without --resume to start'
        ' over.'
      )
    for name in storage.list_dir(self.path):
      if name != _SOURCE and name.startswith('params.'):
        data = storage.read_bytes(f'{self.path}/{name}')
        # A variable with a damaged journal file is made again.
        with contextlib.suppress(ValueError, RecursionError):
          self.finished[name] = msgspec.json.decode(data, type=Finished)
    return True

  def add(self, name: str, entry: Entry, note: Any = None) -> None:
    """Adds a finished variable.

    Args:
      name: The variable.
      entry: The entry of the variable in the manifest.
      note: A JSON value to keep with the entry.
    """
    self.finished[name] = Finished(entry, note)
    data = msgspec.json.encode(self.finished[name])
    storage.write_bytes(f'{self.path}/{name}', data)

  def clear(self) -> None:
    """Removes the journal."""
    storage.delete(self.path)
    self.finished.clear()

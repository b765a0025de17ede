"""What a checkpoint was made of and what it holds: manifest and journal.

manifest.json lies in the step directory beside the commit marker, where paxml
does not look:

  {
    "version": 1,
    "source": {"files": {"model.safetensors": "..."}, "options": {...}},
    "variables": {
      "params.lm.final_ln.scale":
          {"shape": [4096], "dtype": "float32", "bytes": 16384,
           "crc32": "0badcafe"}, ...
    }
  }

The same source gives the same bytes: no times and no paths.

`crc32` is of a variable's numbers in C order, little-endian, whatever its
chunks and its compression. It is there to find damage, not forgery, and costs
a sixth of the time of SHA-256: zlib's runs at 6.3 GB/s on one core of the
machine this was written on, SHA-256 at 1.7 GB/s and zstd, which every byte
passes too, at 0.25 GB/s.

The journal lists the variables that a writer has finished, for the one that
goes on. It is a directory beside the one that is being written:

  checkpoint_00000000.journal/
    source                    what the checkpoint is made of
    params.lm.final_ln.scale  its entry of manifest.json, and what the writer's
                              user notes of it

Each variable has a file, not a line of one: writing a file is atomic on disks
and in buckets alike, so there is no torn entry, and buckets cannot append.
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
  """What a checkpoint is made of.

  Attributes:
    files: A fingerprint of each file, by name.
    options: What else decides the result, such as the type of the numbers.
    stamp: More that tells a changed source, such as times; not in the
      manifest.
  """

  files: Mapping[str, str]
  options: Mapping[str, Any]
  stamp: str = ''

  def document(self) -> dict[str, Any]:
    return {'files': dict(self.files), 'options': dict(self.options)}

  def _encode(self) -> bytes:
    """Returns the bytes of the journal's file."""
    document = self.document() | {'stamp': self.stamp}
    return json.dumps(document, sort_keys=True).encode('ascii')


@dataclasses.dataclass(frozen=True)
class Entry:
  """One variable: shape and type, and the checksum of its numbers."""

  shape: metadata.Shape
  dtype: str
  bytes: int
  crc32: Annotated[str, msgspec.Meta(pattern='^[0-9a-f]{8}$')]

  @classmethod
  def of(cls, spec: metadata.ArraySpec, crc32: int) -> 'Entry':
    return cls(spec.shape, spec.dtype, spec.num_bytes, f'{crc32:08x}')

  @property
  def spec(self) -> metadata.ArraySpec:
    return metadata.ArraySpec(self.shape, self.dtype)


@dataclasses.dataclass(frozen=True)
class Finished:
  """One variable in the journal: its entry, and a JSON value to keep."""

  entry: Entry
  note: Any = None


class _Manifest(msgspec.Struct):
  """The contents of manifest.json."""

  version: Literal[1]
  source: Any
  variables: dict[str, Entry]


def checksum(part: np.ndarray, previous: int = 0) -> int:
  """Returns the CRC-32 of an array's numbers, after those of `previous`."""
  data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
  return zlib.crc32(data, previous)


def entry_of(
  spec: metadata.ArraySpec, parts: Iterable[tuple[int, np.ndarray]]
) -> Entry:
  """Returns the entry of a variable.

  Args:
    spec: The shape and the type of the variable.
    parts: Its parts in order, each with its first row.
  """
  crc32 = 0
  for _, part in parts:
    crc32 = checksum(part, crc32)
  return Entry.of(spec, crc32)


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
    where: The path to name in errors.

  Raises:
    errors.CheckpointError: It is no such file.
  """
  try:
    found = msgspec.json.decode(data, type=_Manifest)
  except (ValueError, RecursionError) as e:
    raise errors.CheckpointError(
      f'{where} is no manifest of version {_VERSION}: {e}; convert or copy the'
      ' checkpoint again'
    ) from e
  return found.source, found.variables


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
    """Begins anew; OSError and storage's errors if it cannot be written."""
    self.clear()
    storage.make_dirs(self.path)
    storage.write_bytes(f'{self.path}/{_SOURCE}', source._encode())

  def load(self, source: Source) -> bool:
    """Reads what was finished; returns whether there is anything to resume.

    Raises:
      errors.CheckpointError: What is there was made of another source.
    """
    where = f'{self.path}/{_SOURCE}'
    if not storage.exists(where):
      return False
    if storage.read_bytes(where) != source._encode():
      raise errors.CheckpointError(
        f'{self.path} is of another conversion: its source or options '
        'differ or were changed since; run again without --resume to start '
        'anew'
      )
    for name in storage.list_dir(self.path):
      if name != _SOURCE and name.startswith('params.'):
        data = storage.read_bytes(f'{self.path}/{name}')
        # A variable whose file is damaged is made again.
        with contextlib.suppress(ValueError, RecursionError):
          self.finished[name] = msgspec.json.decode(data, type=Finished)
    return True

  def add(self, name: str, entry: Entry, note: Any = None) -> None:
    """Adds a finished variable; keeps a JSON value with it."""
    self.finished[name] = Finished(entry, note)
    data = msgspec.json.encode(self.finished[name])
    storage.write_bytes(f'{self.path}/{name}', data)

  def clear(self) -> None:
    """Removes all of it."""
    storage.delete(self.path)
    self.finished.clear()

"""manifest.json: checksums of a checkpoint, and what it was made of.

It lies in the step directory beside the commit marker, where paxml does not
look:

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
"""

from collections.abc import Iterable, Mapping
import dataclasses
import json
from typing import Any
import zlib

import numpy as np

from saxml_ext.pax import chunks
from saxml_ext.pax import errors
from saxml_ext.pax import metadata

FILE_NAME = 'manifest.json'
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Source:
  """What a checkpoint is made of.

  Attributes:
    files: a fingerprint of each file, by name.
    options: what else decides the result, such as the type of the numbers.
    stamp: more that tells a changed source, such as times; not in the
      manifest.
  """

  files: Mapping[str, str]
  options: Mapping[str, Any]
  stamp: str = ''

  def document(self) -> dict[str, Any]:
    return {'files': dict(self.files), 'options': dict(self.options)}


@dataclasses.dataclass(frozen=True)
class Entry:
  """One variable: shape and type, and the checksum of its numbers."""

  spec: metadata.ArraySpec
  crc32: int

  def document(self) -> dict[str, Any]:
    return {
      'shape': list(self.spec.shape),
      'dtype': self.spec.dtype,
      'bytes': chunks.num_bytes(self.spec),
      'crc32': f'{self.crc32:08x}',
    }


def checksum(part: np.ndarray, previous: int = 0) -> int:
  """CRC-32 of an array's numbers, after those that gave `previous`."""
  data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
  return zlib.crc32(data, previous)


def checksum_of(parts: Iterable[tuple[int, np.ndarray]]) -> int:
  """CRC-32 of a variable, from its parts in order, each with its first row."""
  crc32 = 0
  for _, part in parts:
    crc32 = checksum(part, crc32)
  return crc32


def encode(source: Source | None, entries: Mapping[str, Entry]) -> bytes:
  """Returns the bytes of manifest.json."""
  document = {
    'version': _VERSION,
    'source': source.document() if source else None,
    'variables': {name: e.document() for name, e in entries.items()},
  }
  text = json.dumps(document, indent=1, sort_keys=True)
  return (text + '\n').encode('ascii')


def decode(data: bytes, where: str) -> tuple[Any, dict[str, Entry]]:
  """Returns the document of the source, and the entries by name.

  Args:
    data: contents of manifest.json.
    where: path to name in errors.

  Raises:
    errors.CheckpointError: it is no such file.
  """
  try:
    document = json.loads(data)
    if document['version'] != _VERSION:
      raise ValueError(f'version {document["version"]!r}')
    entries = {n: entry_of(d) for n, d in document['variables'].items()}
    return document['source'], entries
  except (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
  ) as e:
    raise errors.CheckpointError(
      f'{where} is no manifest of version {_VERSION}: {e!r}; convert or copy '
      'the checkpoint again'
    ) from e


def entry_of(document: Mapping[str, Any]) -> Entry:
  """The opposite of Entry.document; raises what a wrong document gives."""
  shape = tuple(document['shape'])
  if not all(type(n) is int and n >= 0 for n in shape):
    raise ValueError(f'shape {shape}')
  spec = metadata.ArraySpec(shape, str(document['dtype']))
  return Entry(spec, int(document['crc32'], 16))

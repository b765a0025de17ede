"""Checks the normalization rules inside a SentencePiece model.

The rules are a trie, which the library follows as a text leads it, without
looking whether an index lies in the trie or a result in the replacements: in a
damaged or hostile file they may lead anywhere in the server's memory. Here
every place that a text can lead to is looked at before the library does.

The form is darts-clone's (github.com/s-yata/darts-clone, include/darts.h): 32
bits a unit, which hold a label, whether a rule ends there, and the offset to
the units that follow; the unit at the offset itself holds the rule's result.
"""

import numpy as np

# How many bytes the trie has, before it.
_SIZE_BYTES = 4
_LABELS = 256
# A result's highest bit is set, which makes it no label.
_RESULT = np.uint32(1 << 31)
# The library keeps so many rules that match at one place, one for each length.
_LONGEST_RULE = 32


def check(rules: bytes) -> None:
  """Checks a `precompiled_charsmap`; one that is empty has no rules.

  Raises:
    ValueError: some text would lead out of it.
  """
  if not rules:
    return
  size = int.from_bytes(rules[:_SIZE_BYTES], 'little')
  replacements = rules[_SIZE_BYTES + size :]
  if size % 4 or not 0 < size < len(rules) - _SIZE_BYTES:
    raise ValueError(
      f'its {len(rules)} bytes of normalization rules say that {size} are a trie'
    )
  if replacements[-1] != 0:
    raise ValueError('the last of its normalization rules has no end')
  units = np.frombuffer(rules, np.uint32, size // 4, _SIZE_BYTES)
  # By places: what labels of the next byte are looked for relative to.
  places = _offsets(units[:1])
  for _ in range(_LONGEST_RULE + 1):
    places = _followed(units, places, len(replacements))
    if not places.size:
      return
  raise ValueError(
    f'one of its normalization rules is longer than {_LONGEST_RULE} bytes'
  )


def _followed(units: np.ndarray, places: np.ndarray, limit: int) -> np.ndarray:
  """The places one byte on from `places`; results must lie below `limit`."""
  labels = np.arange(_LABELS, dtype=np.uint32)
  targets = places[:, None] ^ labels
  _check_inside(targets, units)
  found = units[targets]
  matched = (found & (_RESULT | np.uint32(0xFF))) == labels
  nodes = found[matched]
  after = targets[matched] ^ _offsets(nodes)
  ends = after[(nodes >> 8) & 1 == 1]
  _check_inside(ends, units)
  results = units[ends] & ~_RESULT
  if results.size and results.max() >= limit:
    raise ValueError(
      f'a normalization rule leads to byte {results.max()} of {limit}'
    )
  return np.unique(after)


def _offsets(units: np.ndarray) -> np.ndarray:
  """Nine bits say how many, and one whether in blocks of 256."""
  return (units >> 10) << ((units & np.uint32(1 << 9)) >> 6)


def _check_inside(indices: np.ndarray, units: np.ndarray) -> None:
  if indices.size and indices.max() >= len(units):
    raise ValueError(
      f'a normalization rule leads to unit {indices.max()} of {len(units)}'
    )

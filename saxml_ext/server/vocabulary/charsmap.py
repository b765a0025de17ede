"""Checks the normalization rules inside a SentencePiece model.

The rules are a trie, through which a text leads the library. The library does
not check that an index is inside the trie or a result inside the replacements.
In a damaged or hostile file, they may point anywhere in the server's memory. So
this module first checks every place that a text can lead to.

The format is that of darts-clone (github.com/s-yata/darts-clone,
include/darts.h). A unit of 32 bits has a label, a bit that marks the end of a
rule, and the offset to the units that follow. The unit at the offset itself has
the result of the rule.
"""

import numpy as np

# The number of bytes that hold the size of the trie, before the trie.
_SIZE_BYTES = 4
_LABELS = 256
# The highest bit is set in a result, so it cannot be mistaken for a label.
_RESULT = np.uint32(1 << 31)
# The library stores at most this number of rules that match at one place, one
# for each length.
_LONGEST_RULE = 32


def check(rules: bytes) -> None:
  """Checks a `precompiled_charsmap`, which may be empty.

  Raises:
    ValueError: Some text would lead to a place outside of the rules.
  """
  if not rules:
    return
  size = int.from_bytes(rules[:_SIZE_BYTES], 'little')
  replacements = rules[_SIZE_BYTES + size :]
  if size % 4 or not 0 < size < len(rules) - _SIZE_BYTES:
    raise ValueError(
      f'its {len(rules)} bytes of normalization rules declare a trie of {size}'
    )
  if replacements[-1] != 0:
    raise ValueError('the last of its normalization rules is not terminated')
  units = np.frombuffer(rules, np.uint32, size // 4, _SIZE_BYTES)
  # A place is the index to which the labels of the next byte are relative.
  offsets = _offsets(units[:1])
  for _ in range(_LONGEST_RULE + 1):
    offsets = _followed(units, offsets, len(replacements))
    if not offsets.size:
      return
  raise ValueError(
    f'one of its normalization rules is longer than {_LONGEST_RULE} bytes'
  )


def _followed(units: np.ndarray, offsets: np.ndarray, limit: int) -> np.ndarray:
  """Returns the places after one more byte; checks results against `limit`."""
  labels = np.arange(_LABELS, dtype=np.uint32)
  targets = offsets[:, None] ^ labels
  _check_inside(targets, units)
  reached = units[targets]
  matched = (reached & (_RESULT | np.uint32(0xFF))) == labels
  nodes = reached[matched]
  after = targets[matched] ^ _offsets(nodes)
  ends = after[(nodes >> 8) & 1 == 1]
  _check_inside(ends, units)
  results = units[ends] & ~_RESULT
  if results.size and results.max() >= limit:
    raise ValueError(
      f'a normalization rule refers to byte {results.max()} of {limit}'
    )
  return np.unique(after)


def _offsets(units: np.ndarray) -> np.ndarray:
  """Returns the offsets in units, which have a number and a scale bit."""
  return (units >> 10) << ((units & np.uint32(1 << 9)) >> 6)


def _check_inside(indices: np.ndarray, units: np.ndarray) -> None:
  if indices.size and indices.max() >= len(units):
    raise ValueError(
      f'a normalization rule refers to unit {indices.max()} of {len(units)}'
    )

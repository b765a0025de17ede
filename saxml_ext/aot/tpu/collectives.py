"""Which collectives a compiled program runs, read off its HLO."""

import collections
from collections.abc import Mapping
import re

_COLLECTIVE = re.compile(
  r' = .*? (all-reduce|all-gather|reduce-scatter|all-to-all|'
  r'collective-permute)(?:-start)?\('
)


def count(hlo: str) -> Mapping[str, int]:
  """Kind of collective -> how often it stands in the program.

  Those in the body of a loop, such as that over the layers, stand there once.

  Args:
    hlo: text of the optimized program.
  """
  return collections.Counter(m[1] for m in _COLLECTIVE.finditer(hlo))

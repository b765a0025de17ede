"""Reads what an mlperf.conf says of its round."""

import re

from harness.loadgen import rounds

_SEED = re.compile(r'^\s*\*\.\*\.qsl_rng_seed\s*=\s*(\d+)\s*$', re.MULTILINE)


def round_of(path: str) -> str:
  """The round whose seeds a file has.

  Raises:
    OSError: it cannot be read.
    ValueError: it has no seed, or that of no known round.
  """
  with open(path, encoding='utf-8') as file:
    match = _SEED.search(file.read())
  known = {each.qsl_seed: each.name for each in rounds.ROUNDS.values()}
  if match is None:
    raise ValueError(
      f'{path} has no line "*.*.qsl_rng_seed = ..."; give the mlperf.conf of a'
      ' round, or --round'
    )
  seed = int(match[1])
  if seed not in known:
    raise ValueError(
      f'{path} has the seed {seed}, which is of none of the rounds'
      f' {", ".join(rounds.ROUNDS)}'
    )
  return known[seed]

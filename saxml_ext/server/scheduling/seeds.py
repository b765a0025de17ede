"""Seeds of samples that follow from one seed, see --deterministic_rng."""

from collections.abc import Mapping
import dataclasses
import random
from typing import Any

from saxml_ext.server.scheduling import contract

_BITS = 32  # Of an engine's seed.


class Seeded:
  """An engine that gives a seed to requests that have none.

  They get one in the order in which they are admitted, as in stock Sax, whose
  generator goes on with each batch. So the same requests get the same samples
  if they come one after the other.
  """

  def __init__(self, runner: contract.Runner, seed: int):
    """Takes over an engine.

    Args:
      runner: the engine; it has no request yet.
      seed: of the seeds.
    """
    self._runner = runner
    self._random = random.Random(seed)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._runner, name)

  def prefill_and_insert(self, requests: Mapping[int, Any]) -> None:
    """Starts requests; see `contract.Runner`."""
    self._runner.prefill_and_insert(
      {slot: self._with_seed(request) for slot, request in requests.items()}
    )

  def _with_seed(self, request: Any) -> Any:
    if request.seed is not None:
      return request
    return dataclasses.replace(request, seed=self._random.getrandbits(_BITS))

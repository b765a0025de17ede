"""How much KV there is to read while a server is busy.

A kernel that reads each slot's own length takes as long as the slots have keys.
That depends on the requests: a slot is more often found with one of many steps
than with one of few, at each of its steps alike.
"""

import dataclasses
import functools

import numpy as np

from saxml_ext.aot.report import lengths as lengths_lib
from saxml_ext.aot.report.compiled import costs


@dataclasses.dataclass(frozen=True)
class Live:
  """Slots that are all busy with requests of a distribution.

  Attributes:
    slots: on each chip: all of them, or those of its part.
    beams: of each.
    requests: what they are busy with.
  """

  slots: int
  beams: int
  requests: lengths_lib.Lengths

  def blocks(self, block: costs.Block) -> float:
    """Mean number of blocks of all slots in a step."""
    if block.suffix:
      # The ring of steps turns wherever it stands: t steps that begin anywhere
      # lie in 1 + (t - 1) / n blocks of n steps on average.
      steps = block.keys / self.beams
      return self.slots * (1 + (self._mean_steps - 1) / steps)
    counts = np.ceil(self.requests.prompts / block.keys)
    return self.slots * float(np.average(counts, weights=self._steps))

  @functools.cached_property
  def _steps(self) -> np.ndarray:
    # An answer of one token is there after the prefill; still, of nothing but
    # such answers a mean is asked for.
    return np.maximum(self.requests.outputs - 1, 1)

  @functools.cached_property
  def _mean_steps(self) -> float:
    """Mean over all steps of how many have been done, itself included."""
    return float(np.average((self._steps + 1) / 2, weights=self._steps))


def of(made: costs.Set, requests: lengths_lib.Lengths) -> Live:
  """A set's slots, busy with `requests`."""
  return Live(made.slots // made.parts, made.beams, requests)

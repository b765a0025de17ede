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

  def seconds(
    self, block: costs.Block, computing: float, reading: float
  ) -> float:
    """Returns the mean seconds that the blocks of all slots take in a step.

    Args:
      block: The kind of block.
      computing: The seconds to compute a block, full or not.
      reading: The seconds to read a full block, which hides behind computing,
        or the other way round.
    """
    full = max(computing, reading)
    if block.suffix:
      # The ring of steps turns wherever it stands: t steps that begin anywhere
      # lie in 1 + (t - 1) / n blocks of n steps on average.
      steps = block.keys / self.beams
      return full * self.slots * (1 + (self._mean_steps - 1) / steps)
    blocks, rest = np.divmod(self.requests.prompts, block.keys)
    read = np.ceil(rest / block.chunk) * block.chunk / block.keys * reading
    last = np.where(rest > 0, np.maximum(computing, read), 0)
    each = np.average(blocks * full + last, weights=self._steps)
    return self.slots * float(each)

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

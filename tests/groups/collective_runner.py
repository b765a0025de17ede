"""An instant engine that needs every process of its group, as real ones do."""

from collections.abc import Callable
import time

import jax
import numpy as np

from saxml_ext.engine import request as request_lib
from tests.cell import instant_runner


class CollectiveRunner(instant_runner.InstantRunner):
  """Each step adds up a number of every device, those of other hosts too.

  It does so before its results are there, as the last layer of a model does. A
  process that is gone leaves the others waiting in it, or has it fail.
  """

  def __init__(
    self, num_slots: int, step_secs: float, completed: str | None = None
  ):
    """Compiles the sum; every process of the group must do so.

    Args:
      num_slots: The number of requests in a step.
      step_secs: The duration of a step.
      completed: The file that gets a line for each answered prompt of process
        0.
        The other processes answer no one.
    """
    leads = jax.process_index() == 0
    super().__init__(num_slots, completed=completed if leads else None)
    self._secs = step_secs
    self._add = _sum_of_devices()

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    time.sleep(self._secs)
    if (found := self._add()) != jax.device_count():
      raise RuntimeError(f'{jax.device_count()} devices have a sum of {found}')
    return super().step(max_steps)


def _sum_of_devices() -> Callable[[], float]:
  """Adds up a one of each device in all processes."""
  count = jax.device_count()
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ('all',))
  spec = jax.sharding.PartitionSpec
  ones = jax.make_array_from_callback(
    (count,),
    jax.sharding.NamedSharding(mesh, spec('all')),
    lambda index: np.ones(count, np.float32)[index],
  )
  add = jax.jit(
    lambda x: x.sum(), out_shardings=jax.sharding.NamedSharding(mesh, spec())
  )
  return lambda: float(add(ones))

"""Defines an instant engine that needs every process of its group."""

from collections.abc import Callable
import time

import jax
import numpy as np

from saxml_ext.engine import request as request_lib
from tests.cell import instant_runner


class CollectiveRunner(instant_runner.InstantRunner):
  """A runner whose steps sum a number of every device of all hosts.

  The sum is computed before the results exist, like the last layer of a model.
  If a process is gone, the other processes wait in the sum, or it fails.
  """

  def __init__(
    self, num_slots: int, step_secs: float, completed: str | None = None
  ):
    """Compiles the sum; every process of the group must do so.

    Args:
      num_slots: The number of requests in a step.
      step_secs: The duration of a step.
      completed: The path of the file that gets a line for each answered prompt
        of process 0. The other processes give no answers.
    """
    leads = jax.process_index() == 0
    super().__init__(num_slots, completed=completed if leads else None)
    self._secs = step_secs
    self._add = _sum_of_devices()

  def step(self, max_steps: int | None = None) -> dict[int, request_lib.Result]:
    time.sleep(self._secs)
    if (total := self._add()) != jax.device_count():
      raise RuntimeError(f'{jax.device_count()} devices have a sum of {total}')
    return super().step(max_steps)


def _sum_of_devices() -> Callable[[], float]:
  """Returns a function that sums a 1 for each device of all processes."""
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

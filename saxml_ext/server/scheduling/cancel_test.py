"""Tests of the delay until the real engine drops a cancelled request."""

import threading
import time

from absl.testing import absltest
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats

_TIMEOUT = 300
# The number of steps, which is large enough to take a while.
_STEPS = 4000
_MODEL = config_lib.ModelConfig(
  vocab_size=64,
  num_layers=1,
  num_heads=2,
  head_dim=8,
  model_dim=16,
  hidden_dim=32,
  rotary_dim=4,
)
_ENGINE = config_lib.EngineConfig(
  eos_id=63,
  pad_id=63,
  num_slots=1,
  max_prompt=8,
  prompt_buckets=(8,),
  max_new_tokens=_STEPS,
  steps_per_call=_STEPS,
  suffix_block=_STEPS,
  num_beams=1,
  search='sample',
)


class _Watched(runner_lib.Runner):
  """A runner that reports the start of a step and can hold it there.

  Attributes:
    begun: An event that is set when a call has begun.
    gate: An event for which each call waits.
    decoded: The numbers of steps of the calls.
    freed: An event that is set when a slot is released.
  """

  def watch(self) -> None:
    self.begun = threading.Event()
    self.gate = threading.Event()
    self.freed = threading.Event()
    self.decoded: list[int] = []

  def step(self, max_steps=None):
    self.begun.set()
    self.gate.wait(_TIMEOUT)
    before = self._steps
    results = super().step(max_steps)
    self.decoded.append(self._steps - before)
    return results

  def release(self, slot: int) -> None:
    super().release(slot)
    self.freed.set()


class CancelTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    variables = random_model.variables(_MODEL)
    weights = weights_lib.from_pax(variables, _MODEL, 'float32', None)
    cls.runner = _Watched(weights, _MODEL, _ENGINE)
    cls.runner.warm_up()

  def setUp(self):
    super().setUp()
    self.runner.watch()
    self.scheduler = scheduler_lib.Scheduler(
      self.runner,
      limit=10,
      buckets=(8,),
      method_stats={'lm.generate': stats.MethodStats()},
      on_failure=self.fail,
    )
    self.addCleanup(self.scheduler.close, drain=False)
    self.addCleanup(self.runner.gate.set)

  def _start(self):
    future = self.scheduler.generate(
      request_lib.Request(np.asarray([1, 2]), _STEPS, _STEPS)
    )
    self.assertTrue(self.runner.begun.wait(_TIMEOUT))
    return future

  def test_interrupted_call_makes_at_most_one_step(self):
    future = self._start()
    future.cancel()
    self.runner.gate.set()
    self.assertTrue(self.runner.freed.wait(_TIMEOUT))
    self.assertEqual(self.runner.decoded, [1])

  def test_running_call_ends(self):
    future = self._start()
    self.runner.gate.set()
    time.sleep(0.02)
    future.cancel()
    self.assertTrue(self.runner.freed.wait(_TIMEOUT))
    # There was no second call for the request, and the first one ended long
    # before its last step.
    (steps,) = self.runner.decoded
    self.assertLess(steps, _STEPS // 2)

  def test_next_request_gets_the_slot(self):
    future = self._start()
    future.cancel()
    self.runner.gate.set()
    again = self.scheduler.generate(
      request_lib.Request(np.asarray([3]), max_new_tokens=5, min_new_tokens=5)
    )
    (answer,) = again.result(_TIMEOUT).hypotheses
    self.assertLen(answer.tokens, 5)


if __name__ == '__main__':
  absltest.main()

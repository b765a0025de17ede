"""Tests of calls that begin before the last one was read, as on accelerators."""

from collections.abc import Callable
import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import preparation
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving
from saxml_ext.server.scheduling import scheduler as scheduler_lib
from saxml_ext.server.scheduling import stats

_TIMEOUT = 300
_MODEL = config_lib.ModelConfig(
  vocab_size=64,
  num_layers=1,
  num_heads=2,
  head_dim=8,
  model_dim=16,
  hidden_dim=32,
  rotary_dim=4,
)
_ENGINE = dict(
  eos_id=0,
  num_slots=3,
  decode_widths=(1, 3),
  max_prompt=16,
  prompt_buckets=(16,),
  prefill_chunk=8,
  max_new_tokens=14,
  min_new_tokens=1,
  suffix_block=4,
  num_beams=2,
)


class _Overlapping(runner_lib.Runner):
  """A runner that works as on an accelerator, and notes its calls.

  Attributes:
    noted: The words "begin" and "read" in the order of the calls.
    known: The number of steps of the calls that were read.
    most: The maximum number of steps that were begun and not read.
    on_begin: The function to call before each call begins.
    wrong_rows: The differences between the written rows of the ring and the
      steps, which must be 0, since the engine was idle.
  """

  interruptible = False

  def watch(self, on_begin: Callable[[], None] = lambda: None) -> None:
    self.overlaps = True
    self.noted: list[str] = []
    self.known = self.most = 0
    self.on_begin = on_begin
    self.wrong_rows: list[int] = []
    self._turns = self._first_row = self._made = 0

  def _begin_call(self, *args):
    self.on_begin()
    super()._begin_call(*args)
    self.noted.append('begin')
    self.most = max(self.most, self._steps - self.known)

  def _read(self):
    begin, done = self._calls[0].begin, int(self._calls[0].done)
    self.noted.append('read')
    self._made += done
    results = super()._read()
    self.known = begin + done
    rows = self._turns * _ENGINE['suffix_block'] + self._row - self._first_row
    assumed = sum(call.steps for call in self._calls)
    if rows != self._made + assumed:
      self.wrong_rows.append(rows - self._made - assumed)
    return results

  def _rotate_ring(self, by):
    super()._rotate_ring(by)
    self._turns += by

  def release(self, slot):
    super().release(slot)
    if not self.decoding:
      self._first_row = self._turns * _ENGINE['suffix_block']
      self._made = 0


@functools.cache
def _run(exit_finished: int):
  """Returns the programs that the runners of the tests share."""
  return preparation.prepare(
    weights_lib.from_pax(random_model.variables(_MODEL, scale=3.0), _MODEL),
    _MODEL,
    config_lib.EngineConfig(**_ENGINE, exit_finished=exit_finished),
  )


def _overlapping(exit_finished: int = 1) -> _Overlapping:
  runner = _Overlapping.start(_run(exit_finished))
  runner.watch()
  return runner


def _requests(count: int, stream: bool = False) -> list[request_lib.Request]:
  rng = np.random.default_rng(3)
  return [
    request_lib.Request(
      rng.integers(1, 64, rng.integers(1, 17)).astype(np.int32),
      max_new_tokens=int(rng.integers(1, 15)),
      min_new_tokens=int(rng.integers(0, 9)),
      stream=stream,
    )
    for _ in range(count)
  ]


class OverlapTest(parameterized.TestCase):
  def _expected(self, requests, exit_finished=1):
    plain = runner_lib.Runner.start(_run(exit_finished))
    self.assertFalse(plain.overlaps)
    return serving.tokens(serving.serve(plain, requests))

  @parameterized.parameters(1, 2)
  def test_answers_are_the_same(self, exit_finished):
    requests = _requests(16)
    expected = self._expected(requests, exit_finished)
    runner = _overlapping(exit_finished)
    for _ in range(2):
      results = serving.serve(runner, requests)
      self.assertEqual(serving.tokens(results), expected)
    self.assertIn('begin begin read', ' '.join(runner.noted))
    self.assertEqual(runner.wrong_rows, [])

  def test_streams_report_every_step(self):
    requests = _requests(3, stream=True)
    expected = self._expected(requests)
    runner = _overlapping()
    runner.prefill_and_insert(dict(enumerate(requests)))
    results, seen = {}, {slot: [] for slot in range(3)}
    while len(results) < 3:
      results |= runner.step(1)
      for slot, progress in runner.progress.items():
        tokens = progress.rows[0].tokens.tolist()
        self.assertEqual(tokens[: len(seen[slot])], seen[slot])
        seen[slot] = tokens
    got = serving.tokens([results[slot] for slot in range(3)])
    self.assertEqual(got, expected)
    for slot, tokens in seen.items():
      self.assertEqual(tokens, got[slot][0][: len(tokens)])
    self.assertTrue(any(seen.values()))

  def test_slot_of_a_cancelled_request_is_used_again(self):
    requests = _requests(6)
    expected = self._expected(requests)
    # One of them ends within the third call, which may be under way then.
    ended, long = (request_lib.Request(np.arange(1, 9), n, n) for n in (6, 14))
    for steps in range(6):
      runner = _overlapping()
      runner.prefill_and_insert({0: requests[0], 1: ended, 2: long})
      results = {}
      for _ in range(steps):
        results |= runner.step(2)
      for slot in {1, 2} - results.keys():
        runner.release(slot)
      runner.prefill_and_insert({1: requests[3], 2: requests[4]})
      while results.keys() < {0, 1, 2}:
        results |= runner.step()
      got = serving.tokens([results[slot] for slot in range(3)])
      self.assertEqual(got, [expected[i] for i in (0, 3, 4)], steps)
      self.assertEqual(runner.wrong_rows, [], steps)

  def test_new_request_waits_for_two_steps_at_most(self):
    requests = [
      request_lib.Request(np.arange(1, 6), 14, 14),
      request_lib.Request(np.arange(3, 7), 5, 5),
    ]
    expected = self._expected(requests)
    runner = _overlapping()
    method_stats = {
      'lm.generate': stats.MethodStats(),
      'lm.score': stats.MethodStats(),
    }
    second, waits = [], []

    def submit_at_the_fifth_call() -> None:
      if runner.noted.count('begin') == 4 and not second:
        known = runner.known
        second.append(scheduler.generate(requests[1]))
        waits.append(known)

    prefill = runner.prefill_and_insert

    def noting(filled) -> None:
      if second:
        waits.append(runner._steps)
      prefill(filled)

    runner.prefill_and_insert = noting
    runner.watch(submit_at_the_fifth_call)
    scheduler = scheduler_lib.Scheduler(
      runner,
      limit=10,
      buckets=(16,),
      short_call=1,
      method_stats=method_stats,
      on_failure=self.fail,
    )
    self.addCleanup(scheduler.close, drain=False)
    first = scheduler.generate(requests[0]).result(_TIMEOUT)
    other = second[0].result(_TIMEOUT)
    self.assertEqual(serving.tokens([first, other]), expected)
    before, after = waits
    self.assertLessEqual(after - before, 2)
    self.assertEqual(runner.most, 2)
    # The device always has a call to run, while the last one is read.
    self.assertEqual(
      runner.noted[:8], ['begin'] + ['begin', 'read'] * 3 + ['begin']
    )


if __name__ == '__main__':
  absltest.main()

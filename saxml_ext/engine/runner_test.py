import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import random_model
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib

_MODEL = config_lib.GPTJConfig(
    num_layers=2,
    model_dim=32,
    num_heads=2,
    head_dim=16,
    hidden_dim=64,
    rotary_dim=8,
    vocab_size=64,
)
_ENGINE = dict(
    eos_id=0,
    max_prompt=24,
    prompt_buckets=(8, 24),
    prompt_segments=(16, 24),
    max_new_tokens=14,
    min_new_tokens=3,
    num_beams=4,
    suffix_block=4,
)


@functools.cache
def _runner(quantization=None, **settings):
  engine = config_lib.EngineConfig(**{**_ENGINE, **settings})
  variables = random_model.variables(_MODEL, scale=3.0)
  weights = weights_lib.from_pax(variables, _MODEL, engine.dtype, quantization)
  return runner_lib.Runner(weights, _MODEL, engine)


def _requests(count):
  rng = np.random.default_rng(7)
  return [
      runner_lib.Request(
          rng.integers(1, 64, rng.integers(1, 25)).astype(np.int32),
          max_new_tokens=int(rng.integers(1, 15)),
          min_new_tokens=int(rng.integers(0, 6)),
      )
      for _ in range(count)
  ]


def _serve(runner, requests, order):
  """Results by request; slots are refilled as they become free."""
  waiting, holder, results = list(order), {}, {}
  while waiting or holder:
    free = [s for s in range(runner.num_slots) if s not in holder]
    batch = dict(zip(free, waiting))
    del waiting[: len(batch)]
    holder |= batch
    runner.admit({slot: requests[i] for slot, i in batch.items()})
    for slot, result in runner.step().items():
      results[holder.pop(slot)] = result
  return [results[i] for i in range(len(requests))]


def _tokens(results):
  return [[h.tokens.tolist() for h in r.hypotheses] for r in results]


class RunnerTest(parameterized.TestCase):

  def test_tokens_depend_on_neither_order_nor_slots(self):
    requests = _requests(24)
    order = list(range(24))
    alone = _serve(_runner(num_slots=1), requests, order)
    for result, request in zip(alone, requests):
      best = result.hypotheses[0].tokens
      self.assertLessEqual(len(best), request.max_new_tokens)
      scores = [h.score for h in result.hypotheses]
      self.assertEqual(scores, sorted(scores, reverse=True))
    runner = _runner(num_slots=5, prefill_batches=(1, 2))
    for shuffle in (order, order[::-1]):
      together = _serve(runner, requests, shuffle)
      self.assertEqual(_tokens(together), _tokens(alone))
    whole_calls = _runner(num_slots=2, exit_finished=2, steps_per_call=3)
    self.assertEqual(
        _tokens(_serve(whole_calls, requests, order)), _tokens(alone)
    )

  def test_scores_are_those_of_teacher_forcing(self):
    requests = _requests(6)
    runner = _runner(num_slots=2)
    for request, result in zip(requests, _serve(runner, requests, range(6))):
      for h in result.hypotheses:
        forced = runner.score(request.tokens, h.tokens)
        self.assertAlmostEqual(h.logprob, forced, places=3)
        self.assertAlmostEqual(h.score, forced / len(h.tokens), places=3)

  def test_released_slots_are_free_and_leave_no_trace(self):
    requests = _requests(8)
    runner = _runner(num_slots=2)
    expected = _tokens(_serve(runner, requests, range(8)))
    long = runner_lib.Request(np.arange(1, 25), 14, 14)
    runner.admit({0: long, 1: long})
    runner.step()
    runner.release(1)
    with self.assertRaisesRegex(ValueError, "slot 1 is free"):
      runner.release(1)
    runner.admit({1: requests[3]})
    results = {}
    while 1 not in results:
      results |= runner.step()
    self.assertEqual(_tokens([results[1]])[0], expected[3])
    if 0 not in results:
      runner.release(0)
    self.assertEqual(runner.step(), {})
    self.assertEqual(_tokens(_serve(runner, requests, range(8))), expected)

  def test_warm_up_compiles_all_that_is_used(self):
    runner = _runner(num_slots=2)
    lines = []
    runner.warm_up(lines.append)
    compiled = set(runner._run._compiled)
    self.assertLen(lines, len(compiled))
    requests = _requests(6)
    _serve(runner, requests, range(6))
    runner.score(np.asarray([1]), np.asarray([2]))
    self.assertEqual(set(runner._run._compiled), compiled)

  @parameterized.parameters(("float32", 0.2), ("bfloat16", 0.5))
  def test_int8_finishes_and_scores_as_when_forced(self, dtype, tolerance):
    requests = _requests(6)
    runner = _runner("int8", num_slots=3, dtype=dtype)
    for request, result in zip(requests, _serve(runner, requests, range(6))):
      self.assertNotEmpty(result.hypotheses)
      for h in result.hypotheses:
        self.assertBetween(len(h.tokens), 1, request.max_new_tokens)
        # The order of float sums differs, and rounding to int8 enlarges that.
        forced = runner.score(request.tokens, h.tokens)
        self.assertAlmostEqual(h.logprob, forced, delta=tolerance)

  def test_bfloat16_finishes_within_the_limits(self):
    requests = _requests(6)
    runner = _runner(num_slots=3, dtype="bfloat16")
    for request, result in zip(requests, _serve(runner, requests, range(6))):
      self.assertNotEmpty(result.hypotheses)
      for h in result.hypotheses:
        self.assertBetween(len(h.tokens), 1, request.max_new_tokens)

  @parameterized.parameters(
      (dict(tokens=np.zeros(0, np.int32)), "at least one token"),
      (dict(tokens=np.ones(25, np.int32)), "25 tokens; at most 24"),
      (dict(tokens=np.asarray([1, 64])), "from 1 to 64.*0 to 63"),
      (dict(tokens=np.ones(2, int), max_new_tokens=15), "15; between 1 and 14"),
      (dict(tokens=np.ones(2, int), min_new_tokens=-1), "-1; at least 0"),
  )
  def test_requests_out_of_limits_are_refused(self, request, message):
    runner = _runner(num_slots=2)
    good = runner_lib.Request(np.ones(2, np.int32))
    with self.assertRaisesRegex(ValueError, message):
      runner.admit({0: good, 1: runner_lib.Request(**request)})
    self.assertEqual(runner.step(), {})  # The good one was not admitted.

  def test_slots_out_of_limits_are_refused(self):
    runner = _runner(num_slots=2)
    good = runner_lib.Request(np.ones(2, np.int32))
    with self.assertRaisesRegex(ValueError, "slot is 2; there are 2"):
      runner.admit({2: good})
    runner.admit({0: good})
    with self.assertRaisesRegex(ValueError, "slot 0 is occupied"):
      runner.admit({0: good})
    runner.release(0)
    with self.assertRaisesRegex(ValueError, "39 tokens; at most 38"):
      runner.score(np.ones(20, int), np.ones(19, int))


if __name__ == "__main__":
  absltest.main()

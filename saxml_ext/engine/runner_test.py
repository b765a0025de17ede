"""Tests of the engine as a whole, on a small random model."""

import dataclasses
import functools
import threading

from absl.testing import absltest
from absl.testing import parameterized
import jax
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import program_keys
from saxml_ext.engine import request as request_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import random_model
from saxml_ext.engine.testing import serving

jax.config.update('jax_num_cpu_devices', 2)

_MODEL = config_lib.ModelConfig(
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
  # Each bucket, batch and width is a program, and compilation takes most of the
  # time of tests. Only the tests of these settings have several.
  prompt_buckets=(24,),
  prompt_segments=(16, 24),
  max_new_tokens=14,
  min_new_tokens=3,
  num_beams=4,
  suffix_block=4,
)

# The settings of runners that several tests share.
_MANY_PROGRAMS = dict(
  num_slots=5,
  decode_widths=(1, 2, 5),
  prompt_buckets=(8, 24),
  prefill_batches=(1, 2),
)
_GREEDY = dict(
  num_slots=4, num_beams=1, search='sample', temperature=0.0, max_stop_ids=3
)


@functools.cache
def _runner(
  quantization=None, dtype='float32', *, num_slots, shape=None, **settings
):
  settings = {**_ENGINE, 'decode_widths': (num_slots,), **settings}
  engine = config_lib.EngineConfig(num_slots=num_slots, **settings)
  variables = random_model.variables(_MODEL, scale=3.0)
  weights = weights_lib.from_pax(variables, _MODEL, dtype, quantization)
  mesh = None if shape is None else sharding.make_mesh(shape)
  return runner_lib.Runner(weights, _MODEL, engine, mesh)


@functools.cache
def _warm_runner():
  """Returns a runner with all its programs, and the lines of its warm-up."""
  runner, lines = _runner(**_MANY_PROGRAMS), []
  runner.warm_up(lines.append)
  return runner, lines


def _requests(count):
  rng = np.random.default_rng(7)
  return [
    request_lib.Request(
      rng.integers(1, 64, rng.integers(1, 25)).astype(np.int32),
      max_new_tokens=int(rng.integers(1, 15)),
      min_new_tokens=int(rng.integers(0, 6)),
    )
    for _ in range(count)
  ]


class RunnerTest(parameterized.TestCase):
  def test_tokens_depend_on_neither_order_nor_slots(self):
    requests = _requests(24)
    order = list(range(24))
    alone = serving.serve(_runner(num_slots=1), requests, order)
    for result, request in zip(alone, requests):
      best = result.hypotheses[0].tokens
      self.assertLessEqual(len(best), request.max_new_tokens)
      scores = [h.score for h in result.hypotheses]
      self.assertEqual(scores, sorted(scores, reverse=True))
    warm, _ = _warm_runner()
    whole = _runner(num_slots=2, exit_finished=2, steps_per_call=3)
    for runner, shuffle in (warm, order), (warm, order[::-1]), (whole, order):
      together = serving.serve(runner, requests, shuffle)
      self.assertEqual(serving.tokens(together), serving.tokens(alone))

  def test_scores_are_those_of_teacher_forcing(self):
    requests = _requests(6)
    runner = _runner(num_slots=2)
    for request, result in zip(requests, serving.serve(runner, requests)):
      for h in result.hypotheses:
        forced = runner.score(request.tokens, h.tokens)
        self.assertAlmostEqual(h.logprob, forced, places=3)
        self.assertAlmostEqual(h.score, forced / len(h.tokens), places=3)

  def test_released_slots_are_free_and_leave_no_trace(self):
    requests = _requests(8)
    runner = _runner(num_slots=2)
    expected = serving.tokens(serving.serve(runner, requests))
    long = request_lib.Request(np.arange(1, 25), 14, 14)
    runner.prefill_and_insert({0: long, 1: long})
    runner.step()
    runner.release(1)
    with self.assertRaisesRegex(ValueError, 'slot 1 is free'):
      runner.release(1)
    runner.prefill_and_insert({1: requests[3]})
    results = {}
    while 1 not in results:
      results |= runner.step()
    self.assertEqual(serving.tokens([results[1]])[0], expected[3])
    if 0 not in results:
      runner.release(0)
    self.assertEqual(runner.step(), {})
    self.assertEqual(serving.tokens(serving.serve(runner, requests)), expected)

  @parameterized.parameters((None, 4), (None, 16), ((1, 1, 2), 16))
  def test_request_alone_gets_the_same_bits_each_time(self, shape, block):
    """Checks bits, because float sums depend on a suffix's place in the ring.

    One block of 16 rows is a ring on its own. With blocks of 4 rows, the ring
    has several.
    """
    runner = _runner(
      num_slots=3, decode_widths=(1, 3), suffix_block=block, shape=shape
    )
    for request in _requests(4):
      results = []
      for repetition in range(6):
        slot = repetition % runner.num_slots
        runner.prefill_and_insert({slot: request})
        while slot not in (done := runner.step(3)):
          pass
        results.append([(h.logprob, h.score) for h in done[slot].hypotheses])
        # A request that is released must not change later results.
        runner.prefill_and_insert({1: request_lib.Request(np.arange(1, 25))})
        runner.step(1)
        if runner.decoding:
          runner.release(1)
      self.assertEqual(results, [results[0]] * 6)

  def test_warm_up_compiles_all_that_is_used(self):
    runner, lines = _warm_runner()
    compiled = runner._run.compiled
    # One program was compiled before to create the state. The last line counts
    # all programs.
    self.assertLen(lines, len(compiled))
    requests = _requests(6)
    serving.serve(runner, requests)
    runner.score(np.asarray([1]), np.asarray([2]))
    self.assertEqual(runner._run.compiled, compiled)

  def test_chunks_of_a_prompt_leave_the_tokens_as_they_are(self):
    requests = _requests(12)
    expected = serving.tokens(serving.serve(_runner(num_slots=2), requests))
    chunked = _runner(num_slots=3, prefill_chunk=10, prefill_batches=(2,))
    self.assertEqual(serving.tokens(serving.serve(chunked, requests)), expected)
    # The request is released between two chunks, and the slot is used again.
    chunked.prefill_and_insert(
      {0: requests[0], 1: request_lib.Request(np.arange(1, 25))}
    )
    chunked.step(1)
    chunked.release(1)
    results = {}
    chunked.prefill_and_insert({1: requests[5]})
    while len(results) < 2:
      results |= chunked.step()
    self.assertEqual(
      serving.tokens([results[0], results[1]]), [expected[0], expected[5]]
    )

  def test_decode_steps_between_chunks_are_at_least_the_interval(self):
    runner = _runner(num_slots=3, prefill_chunk=10, prefill_batches=(2,))
    runner.prefill_and_insert(
      {0: request_lib.Request(np.arange(1, 9), min_new_tokens=14)}
    )
    runner.prefill_and_insert({1: request_lib.Request(np.arange(1, 25))})
    left = []
    while runner._prefills:
      left.append(len(runner._prefills[0].chunks))
      runner.step(1)  # As for streams.
    self.assertEqual(left[left.index(2) :], [2] * 4 + [1] * 4)
    for slot in 0, 1:
      runner.release(slot)

  def test_older_of_equal_hypotheses_comes_first(self):
    variables = random_model.variables(_MODEL, scale=0.0)
    variables['params.lm.softmax.logits_ffn.bias.b'][:] = 0  # All is as likely.
    engine = config_lib.EngineConfig(
      **{**_ENGINE, 'num_beams': 2}, num_slots=1, decode_widths=(1,)
    )
    runner = runner_lib.Runner(
      weights_lib.from_pax(variables, _MODEL), _MODEL, engine
    )
    request = request_lib.Request(np.asarray([3, 4]), min_new_tokens=0)
    (result,) = serving.serve(runner, [request])
    self.assertEqual(serving.tokens([result]), [[[0], [1, 0]]])
    first, second = result.hypotheses
    self.assertEqual(first.score, second.score)

  def test_step_decodes_at_most_max_steps(self):
    runner = _runner(num_slots=2, suffix_block=16)
    runner.prefill_and_insert({0: request_lib.Request(np.asarray([1]), 10, 10)})
    # The first token was chosen on admission, so nine are left.
    self.assertEqual([runner.step(4), runner.step(4)], [{}, {}])
    (result,) = runner.step(1).values()
    self.assertLen(result.hypotheses[0].tokens, 10)

  def test_an_interrupted_call_ends_after_a_step(self):
    runner = _runner(num_slots=2, suffix_block=16)
    self.assertTrue(runner.interruptible)
    runner.prefill_and_insert({0: request_lib.Request(np.asarray([1]), 10, 10)})
    other = threading.Thread(target=runner.interrupt)
    other.start()
    other.join()
    # The call runs one of the nine remaining steps.
    self.assertEqual(runner.step(), {})
    self.assertEqual(runner.step(7), {})
    (result,) = runner.step(1).values()
    self.assertLen(result.hypotheses[0].tokens, 10)

  def test_greedy_is_beam_search_with_one_beam(self):
    requests = _requests(10)
    beam = _runner(num_slots=3, num_beams=1)
    greedy = _runner(**_GREEDY)
    expected = serving.serve(beam, requests)
    got = serving.serve(greedy, requests)
    self.assertEqual(serving.tokens(got), serving.tokens(expected))
    for a, b in zip(got, expected):
      self.assertAlmostEqual(
        a.hypotheses[0].logprob, b.hypotheses[0].logprob, places=4
      )

  @parameterized.parameters(0, 8)
  def test_samples_depend_on_the_request_alone(self, max_top_k):
    options = [
      dict(temperature=0.7, seed=1),
      dict(temperature=2.0, top_p=0.8, seed=2),
      dict(temperature=2.0, top_k=min(3, max_top_k), seed=3),
      dict(temperature=0.0, seed=4),
    ]
    requests = [
      dataclasses.replace(r, **options[i % 4])
      for i, r in enumerate(_requests(12))
    ]
    settings = dict(search='sample', num_beams=3, max_top_k=max_top_k)
    alone = serving.serve(_runner(num_slots=1, **settings), requests)
    runner = _runner(
      num_slots=5, decode_widths=(2, 5), prefill_batches=(2,), **settings
    )
    for order in (range(12), range(11, -1, -1)):
      together = serving.serve(runner, requests, order)
      self.assertEqual(serving.tokens(together), serving.tokens(alone))
    for i, result in enumerate(alone):
      self.assertLen(result.hypotheses, 3)
      different = len({tuple(h.tokens) for h in result.hypotheses})
      if i % 4 == 3:
        self.assertEqual(different, 1)
      for h in result.hypotheses:
        forced = runner.score(requests[i].tokens, h.tokens)
        self.assertAlmostEqual(h.score, forced, places=3)
    self.assertGreater(
      sum(len({tuple(h.tokens) for h in r.hypotheses}) for r in alone), 20
    )
    other = [dataclasses.replace(r, seed=77) for r in requests]
    self.assertNotEqual(
      serving.tokens(serving.serve(runner, other)), serving.tokens(alone)
    )

  def test_stop_ids_end_an_answer(self):
    runner = _runner(**_GREEDY)
    prompt = np.asarray([5, 6])
    (plain,) = serving.serve(
      runner, [request_lib.Request(prompt, 14, 0, stop_ids=())], [0]
    )
    tokens = plain.hypotheses[0].tokens
    self.assertLen(tokens, 14)
    stop = int(tokens[6])
    first = tokens.tolist().index(stop)
    (stopped,) = serving.serve(
      runner, [request_lib.Request(prompt, 14, 0, stop_ids=(0, stop))], [0]
    )
    self.assertEqual(
      stopped.hypotheses[0].tokens.tolist(), tokens[: first + 1].tolist()
    )
    (barred,) = serving.serve(
      runner, [request_lib.Request(prompt, 14, 14, stop_ids=(0, stop))], [0]
    )
    self.assertNotIn(stop, barred.hypotheses[0].tokens[:-1])

  @parameterized.parameters(
    ('int8', 'float32', 'float32', 0.2),
    ('int8', 'bfloat16', 'bfloat16', 0.5),
    ('int8_weights', 'float32', 'float32', 0.01),
    ('int8_weights', 'bfloat16', 'bfloat16', 0.5),
    ('int8', 'float32', 'int8', 0.2),
    (None, 'float32', 'int8', 0.2),
    (None, 'float32', 'bfloat16', 0.1),
  )
  def test_rounded_numbers_score_as_when_forced(
    self, quantization, dtype, kv_dtype, tolerance
  ):
    requests = _requests(6)
    runner = _runner(quantization, dtype, num_slots=3, kv_dtype=kv_dtype)
    for request, result in zip(requests, serving.serve(runner, requests)):
      self.assertNotEmpty(result.hypotheses)
      for h in result.hypotheses:
        self.assertBetween(len(h.tokens), 1, request.max_new_tokens)
        # The order of float sums differs, and rounding to int8 increases the
        # difference.
        forced = runner.score(request.tokens, h.tokens)
        self.assertAlmostEqual(h.logprob, forced, delta=tolerance)

  @parameterized.parameters(
    (dict(tokens=np.zeros(0, np.int32)), 'at least one token'),
    (dict(tokens=np.ones(25, np.int32)), '25 tokens, above the limit of 24'),
    (dict(tokens=np.asarray([1, 64])), 'from 1 to 64.*0 to 63'),
    (
      dict(tokens=np.ones(2, int), max_new_tokens=15),
      '15, but must be between 1 and 14',
    ),
    (
      dict(tokens=np.ones(2, int), min_new_tokens=-1),
      '-1, but must be at least 0',
    ),
    (
      dict(tokens=np.ones(2, int), stop_ids=(1, 2)),
      '2 stop ids, above .* of 1',
    ),
    (dict(tokens=np.ones(2, int), stop_ids=(64,)), '64.*0 to 63'),
    (
      dict(tokens=np.ones(2, int), temperature=-1.0),
      '-1.0, but must be finite and at least 0',
    ),
    (dict(tokens=np.ones(2, int), top_p=0.0), '0.0, but must be above 0'),
    (dict(tokens=np.ones(2, int), top_k=1), '1, but must be between 0 and 0'),
    (dict(tokens=np.ones(2, int), seed=-1), '-1, not between 0'),
  )
  def test_requests_out_of_limits_are_refused(self, request, message):
    runner = _runner(num_slots=2)
    good = request_lib.Request(np.ones(2, np.int32))
    with self.assertRaisesRegex(ValueError, message):
      runner.prefill_and_insert({0: good, 1: request_lib.Request(**request)})
    self.assertEqual(runner.step(), {})  # The good one was not admitted.

  def test_slots_out_of_limits_are_refused(self):
    runner = _runner(num_slots=2)
    good = request_lib.Request(np.ones(2, np.int32))
    with self.assertRaisesRegex(ValueError, 'slot is 2, but there are 2'):
      runner.prefill_and_insert({2: good})
    runner.prefill_and_insert({0: good})
    with self.assertRaisesRegex(ValueError, 'slot 0 is occupied'):
      runner.prefill_and_insert({0: good})
    runner.release(0)
    with self.assertRaisesRegex(ValueError, '39 tokens, above the limit of 38'):
      runner.score(np.ones(20, int), np.ones(19, int))


class IncompleteProgramTest(absltest.TestCase):
  def test_a_program_without_a_function_is_compiled_anew(self):
    def ready(key, signature):
      del signature
      if not isinstance(key, program_keys.EmptyState):
        return None

      def incomplete(*args):
        raise jax.errors.JaxRuntimeError(
          'NOT_FOUND: Function wrapped_broadcast.10 not found (type id: 1)'
        )

      return incomplete

    engine = config_lib.EngineConfig(num_slots=2, decode_widths=(2,), **_ENGINE)
    weights = weights_lib.from_pax(random_model.variables(_MODEL), _MODEL)
    runner = runner_lib.Runner(weights, _MODEL, engine, ready=ready)
    self.assertEqual(runner.num_slots, engine.num_slots)


if __name__ == '__main__':
  absltest.main()

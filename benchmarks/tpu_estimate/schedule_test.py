import dataclasses

from absl.testing import absltest
import numpy as np

from benchmarks.tpu_estimate import benchmarks
from benchmarks.tpu_estimate import lengths as lengths_lib
from benchmarks.tpu_estimate import predict
from benchmarks.tpu_estimate import rules
from benchmarks.tpu_estimate import schedule
from benchmarks.tpu_estimate.testing import sets

_PREFILL = 0.5
_STEP = 0.25
_CALL = 0.125
_POLICY = schedule.Policy(slots=4, buckets=(512, 1024), rows=(1,))
_TIMES = rules.Times(
  {(1, 512): _PREFILL, (1, 1024): 2.0},
  _CALL,
  _STEP,
)


def _equal(count: int, prompt: int = 100, output: int = 11):
  return lengths_lib.Lengths(
    np.full(count, prompt), np.full(count, output), 'equal'
  )


class ScheduleTest(absltest.TestCase):
  def test_equal_requests_run_in_rounds(self):
    # There are 3 rounds of 4 prefills and 10 steps. The prefill produces the
    # first token.
    outcome = schedule.run(_equal(12), _TIMES, _POLICY)
    seconds = 3 * (4 * _PREFILL + _CALL + 10 * _STEP)
    self.assertEqual((outcome.calls, outcome.steps), (3, 30))
    self.assertAlmostEqual(12 / outcome.samples_per_second, seconds)
    self.assertAlmostEqual(outcome.prefill_share, 3 * 4 * _PREFILL / seconds)
    self.assertEqual(outcome.busy, 1)
    self.assertAlmostEqual(outcome.padding, 512 / 100)
    self.assertAlmostEqual(outcome.latencies.max(), seconds)

  def test_long_calls_are_cut(self):
    outcome = schedule.run(_equal(4, output=101), _TIMES, _POLICY)
    seconds = 4 * _PREFILL + 4 * _CALL + 100 * _STEP
    self.assertAlmostEqual(outcome.latencies.max(), seconds)

  def test_each_call_waits_for_the_host(self):
    slower = dataclasses.replace(_TIMES, host=0.75)
    outcome = schedule.run(_equal(12), slower, _POLICY)
    seconds = 3 * (4 * _PREFILL + _CALL + 0.75 + 10 * _STEP)
    self.assertAlmostEqual(outcome.latencies.max(), seconds)

  def test_an_answer_of_one_token_needs_no_step(self):
    outcome = schedule.run(_equal(8, output=1), _TIMES, _POLICY)
    self.assertAlmostEqual(outcome.samples_per_second, 1 / _PREFILL)

  def test_rows_are_prefilled_together(self):
    policy = schedule.Policy(4, (512,), (1, 4))
    seconds = rules.Times({(1, 512): 0.5, (4, 512): 0.75}, 0, 0)
    together = schedule.run(_equal(8), seconds, policy)
    self.assertAlmostEqual(together.samples_per_second, 8 / 1.5)
    # 3 requests form a batch of 4 with one repeated row.
    three = schedule.run(_equal(3), seconds, policy)
    self.assertAlmostEqual(three.samples_per_second, 3 / 0.75)

  def test_parts_prefill_in_parallel(self):
    seconds = rules.Times({(2, 512): 0.5}, 0, 0.25)
    policy = schedule.Policy(4, (512,), (2,), parts=2)
    # There are two rounds of two prefills and 10 steps.
    outcome = schedule.run(_equal(8), seconds, policy)
    self.assertAlmostEqual(8 / outcome.samples_per_second, 2 * (2 * 0.5 + 2.5))
    # The last two requests are in the same part, so they cannot be prefilled
    # together.
    outcome = schedule.run(_equal(6), seconds, policy)
    self.assertAlmostEqual(6 / outcome.samples_per_second, 7.0)

  def test_a_prompt_waits_for_another_part(self):
    outputs = np.array([2, 21, 21, 3, 11, 11])
    requests = lengths_lib.Lengths(np.full(6, 100), outputs, 'unequal')
    seconds = rules.Times({(2, 512): 0.5}, 0, 0.25)
    policy = schedule.Policy(4, (512,), (2,), parts=2)
    outcome = schedule.run(requests, seconds, policy)
    # Slot 0 is free after one step, and slot 3 after another. One prefill fills
    # both.
    self.assertAlmostEqual(outcome.latencies[4], 3 * 0.5 + 12 * 0.25)
    self.assertAlmostEqual(outcome.latencies[5], 3 * 0.5 + 12 * 0.25)

  def test_a_freed_slot_is_refilled_at_once(self):
    requests = lengths_lib.Lengths(
      np.full(3, 100), np.array([2, 11, 10]), 'unequal'
    )
    policy = schedule.Policy(2, (512,), (1,))
    outcome = schedule.run(requests, _TIMES, policy)
    # The run has two prefills and a step, the third request's prefill, and 9
    # steps of both.
    seconds = 3 * _PREFILL + 2 * _CALL + 10 * _STEP
    self.assertAlmostEqual(outcome.latencies.max(), seconds)
    self.assertEqual(outcome.busy, 1)

  def test_rate_follows_programs_answers_and_slots(self):
    requests = lengths_lib.ASSUMED.draw(200)
    policy = schedule.Policy(8, (512, 1024, 1919), (1,))

    def rate(step=0.01, call=0.0, slots=8, drawn=requests):
      seconds = rules.Times({(1, 512): 0.01}, call, step)
      how = schedule.Policy(slots, policy.buckets, policy.rows)
      return schedule.run(drawn, seconds, how).samples_per_second

    self.assertGreater(rate(step=0.005), rate())
    self.assertGreater(rate(), rate(call=0.01))
    self.assertGreater(rate(slots=16), rate())
    longer = lengths_lib.Lengths(requests.prompts, requests.outputs * 2, '')
    self.assertGreater(rate(), rate(drawn=longer))

  def test_lone_arrival_starts_at_once(self):
    arrivals = np.array([5.0, 100.0])
    outcome = schedule.run(_equal(2), _TIMES, _POLICY, arrivals)
    # Calls are short while slots are free, so there are calls of 8 and 2 steps.
    alone = _PREFILL + 2 * _CALL + 10 * _STEP
    np.testing.assert_allclose(outcome.latencies, [alone, alone])

  def test_the_highest_rate_keeps_the_bound(self):
    requests = _equal(400)
    offline = schedule.run(requests, _TIMES, _POLICY).samples_per_second

    def valid(rate: float) -> bool:
      arrivals = schedule.poisson(len(requests), rate)
      outcome = schedule.run(requests, _TIMES, _POLICY, arrivals)
      return benchmarks.GPTJ.bounds['Server'].valid(outcome)

    highest = schedule.highest_rate(valid, offline)
    self.assertLess(highest, offline)
    self.assertGreater(highest, 0.5 * offline)
    self.assertTrue(valid(highest))
    self.assertFalse(valid(highest + offline / 256))

  def test_slots_without_requests_shorten_steps(self):
    seconds = dataclasses.replace(_TIMES, idle=0.0625)
    outcome = schedule.run(_equal(2), seconds, _POLICY)
    # Two of 4 slots are busy. Calls have 8 and 2 steps.
    total = 2 * _PREFILL + 2 * _CALL + 10 * (_STEP - 2 * 0.0625)
    self.assertAlmostEqual(outcome.latencies.max(), total)


class StreamTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.times = dataclasses.replace(_TIMES, host=0.5, message=0.0625)
    self.policy = dataclasses.replace(_POLICY, stream_interval=1)

  def test_a_message_follows_each_step(self):
    outcome = schedule.run(_equal(1), self.times, self.policy)
    step = 0.5 + _CALL + _STEP + 0.0625
    self.assertEqual((outcome.calls, outcome.steps), (10, 10))
    # The first message follows the first step after the prefill.
    np.testing.assert_allclose(outcome.first_tokens, [_PREFILL + step])
    np.testing.assert_allclose(outcome.latencies, [_PREFILL + 10 * step])
    np.testing.assert_allclose(outcome.per_token, [9 * step / 10])

  def test_each_stream_has_its_message(self):
    outcome = schedule.run(_equal(2), self.times, self.policy)
    step = 0.5 + _CALL + _STEP + 2 * 0.0625
    np.testing.assert_allclose(outcome.first_tokens, 2 * [2 * _PREFILL + step])

  def test_fewer_messages_wait_less_for_the_host(self):
    policy = dataclasses.replace(self.policy, stream_interval=5)
    outcome = schedule.run(_equal(1), self.times, policy)
    call = 0.5 + _CALL + 5 * _STEP + 0.0625
    self.assertEqual((outcome.calls, outcome.steps), (2, 10))
    np.testing.assert_allclose(outcome.first_tokens, [_PREFILL + call])
    np.testing.assert_allclose(outcome.per_token, [call / 10])

  def test_a_prefill_interrupts_the_streams(self):
    step = 0.5 + _CALL + _STEP
    # The second request arrives during the first step of the first one.
    arrivals = np.array([0.0, _PREFILL + step / 2])
    outcome = schedule.run(_equal(2), self.times, self.policy, arrivals)
    alone, both = step + 0.0625, step + 2 * 0.0625
    np.testing.assert_allclose(
      outcome.first_tokens,
      [_PREFILL + alone, alone - step / 2 + _PREFILL + both],
    )
    # The first request has one step alone, and 9 beside the other.
    np.testing.assert_allclose(outcome.per_token[0], (_PREFILL + 9 * both) / 10)

  def test_single_token_is_the_first_token(self):
    outcome = schedule.run(_equal(1, output=1), self.times, self.policy)
    np.testing.assert_allclose(outcome.first_tokens, outcome.latencies)
    np.testing.assert_allclose(outcome.per_token, [0])


class BoundsTest(absltest.TestCase):
  def test_each_bound_counts_alone(self):
    outcome = schedule.run(
      _equal(100),
      rules.Times({(1, 512): 0.001}, 0, 0.01),
      schedule.Policy(100, (512,), (1,), stream_interval=1),
    )
    # The first token comes after 100 prefills and a step. 9 of 10 tokens after
    # the first take a step each.
    self.assertAlmostEqual(outcome.first_tokens.max(), 0.11)
    self.assertAlmostEqual(outcome.per_token.max(), 0.009)
    for valid, bounds in (
      (True, {'ttft': 0.1101, 'tpot': 0.0091}),
      (False, {'ttft': 0.1099, 'tpot': 0.0091}),
      (False, {'ttft': 0.1101, 'tpot': 0.0089}),
      (True, {'latency': 0.2001}),
      (False, {'latency': 0.1999}),
    ):
      self.assertEqual(benchmarks.Bounds(**bounds).valid(outcome), valid)

  def test_one_request_of_a_hundred_may_be_late(self):
    late = np.array([0.0] * 99 + [9.0])
    self.assertTrue(benchmarks.Bounds(latency=0.1).keeps(late))
    self.assertFalse(benchmarks.Bounds(latency=0.1).keeps(late[50:]))


class StaticBatchingTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    seconds = rules.Times({(4, 512): _PREFILL}, 0, _STEP)
    longer = rules.Times({(4, 1024): 1.0}, 0, 2 * _STEP)
    self.times = {512: seconds, 1024: longer}
    self.policy = schedule.StaticBatching(4, (512, 1024), wait=4.0)

  def test_a_batch_waits_for_its_longest(self):
    requests = lengths_lib.Lengths(
      np.array([10, 20, 900, 30]), np.array([5, 41, 6, 7]), ''
    )
    rate = self.policy.offline(requests, self.times)
    self.assertAlmostEqual(rate, 4 / (1.0 + 40 * 2 * _STEP))

  def test_an_offline_query_is_sorted(self):
    requests = lengths_lib.Lengths(
      np.array([10, 900] * 4), np.array([11] * 8), ''
    )
    rate = self.policy.offline(requests, self.times)
    short, long = _PREFILL + 10 * _STEP, 1.0 + 10 * 2 * _STEP
    self.assertAlmostEqual(rate, 8 / (short + long))

  def test_a_server_batch_goes_when_full_or_late(self):
    arrivals = np.array([0.0, 0.1, 0.2, 0.3, 50.0])
    latencies = self.policy.server(_equal(5), self.times, arrivals)
    seconds = _PREFILL + 10 * _STEP
    self.assertAlmostEqual(latencies[0], 0.3 + seconds)
    self.assertAlmostEqual(latencies[4], 4.0 + seconds)

  def test_batches_can_always_decode_to_the_limit(self):
    policy = schedule.StaticBatching(4, (512,), longest=101)
    rate = policy.offline(_equal(4), self.times)
    self.assertAlmostEqual(rate, 4 / (_PREFILL + 100 * _STEP))


class PredictTest(absltest.TestCase):
  def test_requests_decode_more_steps_than_their_answers_have_tokens(self):
    prediction = predict.predict(sets.small(), _equal(80), rules.CENTRAL, False)
    # 11 tokens take 11 * 1.077 = 12 steps. The prefill does one of them.
    seconds = 8 * 0.010 + 0.001 + 11 * 0.020
    self.assertAlmostEqual(prediction.offline, 8 / seconds)
    shares = predict.shares(sets.small(), _equal(80), prediction)
    self.assertAlmostEqual(sum(shares.values()), 1)
    self.assertAlmostEqual(shares['host'], 0.001 / seconds)


class TimesTest(absltest.TestCase):
  def test_lengths_between_programs_are_in_proportion(self):
    self.assertAlmostEqual(_TIMES.prefill(1, 768), (0.5 + 2.0) / 2)
    self.assertAlmostEqual(_TIMES.prefill(1, 256), 0.25)
    self.assertAlmostEqual(_TIMES.prefill(1, 2048), 4.0)

  def test_times_follow_from_a_set(self):
    times = rules.times(sets.small(), rules.CENTRAL, _equal(8))
    self.assertAlmostEqual(times.step, 0.02)
    self.assertAlmostEqual(times.prefill(1, 1919), 0.03)
    self.assertEqual(times.host, rules.CENTRAL.host)
    self.assertEqual(predict.policy(sets.small()).buckets, (512, 1919))

  def test_a_set_without_decoding_is_refused(self):
    made = sets.small()
    programs = dict(made.programs)
    del programs['decode 8']
    with self.assertRaisesRegex(ValueError, 'needs decode 8'):
      rules.times(
        type(made)(**{**vars(made), 'programs': programs}),
        rules.CENTRAL,
        _equal(8),
      )


class LengthsTest(absltest.TestCase):
  def test_steps_beyond_the_answer_end_at_the_limit(self):
    prompts = np.array([7, 7, 7, 7])
    lengths = lengths_lib.Lengths(prompts, np.array([30, 100, 128, 200]), 'x')
    decoded = lengths.decoded(1.1)
    self.assertEqual(decoded.outputs.tolist(), [33, 110, 128, 200])
    self.assertEqual(decoded.prompts.tolist(), prompts.tolist())

  def test_assumption_has_its_mean(self):
    drawn = lengths_lib.ASSUMED.draw(20000)
    self.assertAlmostEqual(drawn.prompts.mean(), 893, delta=15)
    self.assertAlmostEqual(drawn.outputs.mean(), 69.5, delta=1)
    self.assertLessEqual(drawn.prompts.max(), 1919)
    self.assertEqual((drawn.outputs.min(), drawn.outputs.max()), (30, 128))
    self.assertIn('assumed', drawn.source)

  def test_lengths_are_drawn_from_a_histogram(self):
    text = lengths_lib.histogram([5, 5, 7], [1], 'a test')
    drawn = lengths_lib.read(text, 'x', 3000)
    self.assertEqual(set(drawn.prompts), {5, 7})
    self.assertAlmostEqual((drawn.prompts == 5).mean(), 2 / 3, delta=0.05)
    self.assertEqual(set(drawn.outputs), {1})
    self.assertEqual(drawn.source, 'a test')

  def test_a_prompt_beyond_all_buckets_is_an_error(self):
    self.assertEqual(lengths_lib.bucket(513, (512, 1024)), 1024)
    with self.assertRaisesRegex(ValueError, '1025 tokens'):
      lengths_lib.bucket(1025, (512, 1024))

  def test_other_files_are_refused(self):
    for text in ('{}', '[', '{"format": 2}', '{"format": 1, "prompts": {}}'):
      with self.assertRaisesRegex(ValueError, 'count_lengths'):
        lengths_lib.read(text, 'x.json', 10)
    with self.assertRaisesRegex(ValueError, '0 prompts'):
      lengths_lib.histogram([], [1], '')


if __name__ == '__main__':
  absltest.main()

"""Tests of lm_service over gRPC, with a fake engine."""

import time

from absl.testing import absltest
from absl.testing import parameterized
import grpc

from saxml_ext.params import gptj
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.testing import fake_runner
from saxml_ext.server.testing import server_fixture

_KEY = '/sax/test/m'
_TIMEOUT = 300
_Code = grpc.StatusCode


class _Params(gptj.TinyTokenizedFP32):
  INPUT_SEQ_LEN = 8
  BUCKET_KEYS = None
  MAX_LIVE_BATCHES = 3
  EXTRA_INPUTS = {'per_example_max_decode_steps': 128, 'temperature': 0.5}


class _Sampling(_Params):
  USE_BEAM_SEARCH = False


class LMServiceTest(parameterized.TestCase):
  def _start(self, num_slots=2, steps=1, params=_Params, **load) -> None:
    self.runner = fake_runner.FakeRunner(num_slots, steps)
    self.server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(params, self.runner)
    )
    self.addCleanup(self.server.stop)
    self.addCleanup(self.runner.gate.set)
    self.server.load(_KEY, **load)

  def _generate(self, text, key=_KEY, timeout=_TIMEOUT, **items):
    return self.server.lm.Generate.future(
      lm_pb2.GenerateRequest(
        model_key=key,
        text=text,
        extra_inputs=common_pb2.ExtraInputs(items=items),
      ),
      timeout=timeout,
    )

  def _texts(self, text, **items) -> list[str]:
    return [t.text for t in self._generate(text, **items).result().texts]

  def _assert_error(self, call, code, *words) -> None:
    with self.assertRaises(grpc.RpcError) as caught:
      call.result()
    self.assertIs(caught.exception.code(), code, caught.exception.details())
    for word in words:
      self.assertIn(word, caught.exception.details())

  def _until(self, condition) -> None:
    end = time.monotonic() + _TIMEOUT
    while not condition():
      self.assertLess(time.monotonic(), end, 'it never happened')
      time.sleep(0.005)

  def _stats(self, method) -> modelet_pb2.GetStatusResponse.MethodStats:
    status = self.server.modelet.GetStatus(
      modelet_pb2.GetStatusRequest(include_method_stats=True)
    )
    return next(s for s in status.models[0].method_stats if s.method == method)

  def test_request_refused_by_the_engine_is_an_invalid_argument(self):
    self._start(params=_Sampling)
    self._assert_error(
      self._generate('1,2', temperature=-1), _Code.INVALID_ARGUMENT, '-1'
    )
    self.assertLen(self._texts('1,2', temperature=0.5), 2)

  def test_best_hypothesis_comes_first_with_the_end_id(self):
    self._start()
    response = self._generate('99,7,12').result()
    self.assertEqual([t.text for t in response.texts], ['12,7,99', '99'])
    self.assertEqual([t.score for t in response.texts], [-1.0, -2.0])

  def test_words_end_without_the_end_id(self):
    # The codec writes ids in both cases; only the setting differs.
    self._start(params=type('P', (_Params,), {'TOKENIZED_OUTPUT': False}))
    self.assertEqual(self._texts('99,7,12'), ['12,7', ''])

  def test_concurrent_calls_are_all_answered(self):
    self._start(
      num_slots=4,
      steps=2,
      params=type('P', (_Params,), {'MAX_LIVE_BATCHES': 100}),
    )
    calls = [self._generate(f'{i % 90},1') for i in range(300)]
    self.assertEqual(
      [c.result().texts[0].text for c in calls],
      [f'1,{i % 90}' for i in range(300)],
    )
    self.assertEqual(self.runner.threads, {'scheduler'})
    stats = self._stats('lm.generate')
    self.assertAlmostEqual(stats.successes_per_second, 300 / 60, places=3)
    self.assertGreater(stats.p99_latency_on_success_per_second, 0)
    self.assertNotEmpty(stats.recent_batch_sizes)
    self.assertLessEqual(max(stats.recent_batch_sizes), 4)

  def test_long_prompts_are_truncated(self):
    self._start()
    self._texts('1,2,3,4,5,6,7,8,9,10')
    self.assertEqual(self.runner.admitted(), [[1, 2, 3, 4, 5, 6, 7, 8]])

  def test_limits_of_a_request_reach_the_engine(self):
    self._start()
    self._texts('1', per_example_max_decode_steps=10)
    self._texts('1')
    requests = [r for batch in self.runner.admissions for r in batch]
    self.assertEqual(
      [(r.min_new_tokens, r.max_new_tokens) for r in requests],
      [(10, 10), (30, 128)],
    )

  @parameterized.parameters(
    ('hello', {}, 'token ids separated by commas'),
    ('100', {}, 'vocabulary of 100 ids'),
    ('', {}, 'token ids'),
    ('1', {'top_k': 3}, "'top_k' is not declared"),
    (
      '1',
      {'per_example_max_decode_steps': 129},
      'above the limit of this model, 128',
    ),
    ('1', {'per_example_max_decode_steps': 0}, 'whole number'),
    ('1', {'temperature': float('nan')}, 'finite'),
  )
  def test_invalid_requests_are_refused(self, text, items, message):
    self._start()
    self._assert_error(
      self._generate(text, **items), _Code.INVALID_ARGUMENT, message
    )
    self.assertEmpty(self.runner.admissions)
    self.assertGreater(self._stats('lm.generate').errors_per_second, 0)

  def test_prompt_is_echoed_if_configured(self):
    self._start(
      params=type('P', (_Params,), {'INCLUDE_PREFIX_IN_RESULT': True})
    )
    self.assertEqual(self._texts('3,4'), ['3,4,4,3', '3,4,3'])

  def test_unknown_model_is_not_found(self):
    self._start()
    self._assert_error(
      self._generate('1', key='/sax/test/x'),
      _Code.NOT_FOUND,
      '/sax/test/x',
      f'Available models: {_KEY}',
    )

  def test_unsupported_methods_are_refused(self):
    self._start()
    lm = self.server.lm
    self._assert_error(
      lm.Embed.future(lm_pb2.EmbedRequest(model_key=_KEY)),
      _Code.INVALID_ARGUMENT,
      'lm.embed',
      'Available: lm.generate, lm.score',
    )
    self._assert_error(
      lm.Gradient.future(lm_pb2.GradientRequest(model_key=_KEY)),
      _Code.INVALID_ARGUMENT,
      'lm.gradient',
    )
    with self.assertRaises(grpc.RpcError) as caught:
      list(lm.GenerateStream(lm_pb2.GenerateRequest(model_key=_KEY)))
    self.assertIs(caught.exception.code(), _Code.INVALID_ARGUMENT)
    self.assertIn('lm.generate_stream', caught.exception.details())

  def test_acl_restricts_only_its_method(self):
    self._start(
      acls=common_pb2.AccessControlLists(items={'lm.score': 'acl/few'})
    )
    self._assert_error(
      self.server.lm.Score.future(
        lm_pb2.ScoreRequest(model_key=_KEY, prefix='1', suffix=['2'])
      ),
      _Code.PERMISSION_DENIED,
      'acl/few',
    )
    self.assertLen(self._texts('1'), 2)

  def test_excess_requests_are_refused(self):
    self._start(num_slots=1)
    self.runner.gate.clear()
    held = [self._generate(str(i)) for i in range(3)]
    self._until(lambda: self._stats('lm.generate').pending_reqs == 3)
    refused = self._generate('9')
    self._assert_error(refused, _Code.RESOURCE_EXHAUSTED, 'Too many requests')
    metadata = dict(refused.trailing_metadata())
    self.assertGreater(int(metadata['grpc-retry-pushback-ms']), 0)
    self.runner.gate.set()
    for call in held:
      self.assertLen(call.result().texts, 2)

  def test_cancelled_call_leaves_the_queue(self):
    self._start(num_slots=1)
    self.runner.gate.clear()
    running = self._generate('1')
    self._until(lambda: self.runner.admissions)
    queued = self._generate('2')
    self._until(lambda: self._stats('lm.generate').pending_reqs == 2)
    queued.cancel()
    # The server has seen the cancellation once the call counts as failed.
    self._until(lambda: self._stats('lm.generate').errors_per_second > 0)
    self.runner.gate.set()
    self.assertLen(running.result().texts, 2)
    self._until(lambda: not self._stats('lm.generate').pending_reqs)
    self.assertEqual(self.runner.admitted(), [[1]])

  def test_cancelled_call_frees_its_slot(self):
    self._start(num_slots=1, steps=10**9)
    call = self._generate('1')
    self._until(lambda: self.runner.admissions)
    call.cancel()
    self._until(lambda: self.runner.released == [0])

  def test_request_expires_in_the_queue(self):
    self._start(num_slots=1)
    self.runner.gate.clear()
    running = self._generate('1')
    self._until(lambda: self.runner.admissions)
    # The timeout is long enough for the request to reach a busy server.
    queued = self._generate('2', timeout=3.0)
    self._until(lambda: self._stats('lm.generate').pending_reqs == 2)
    self._assert_error(queued, _Code.DEADLINE_EXCEEDED)
    # The server has seen the deadline once the call counts as failed.
    self._until(lambda: self._stats('lm.generate').errors_per_second > 0)
    self.runner.gate.set()
    self.assertLen(running.result().texts, 2)
    self._until(lambda: not self._stats('lm.generate').pending_reqs)
    self.assertEqual(self.runner.admitted(), [[1]])

  def test_engine_failure_fails_requests(self):
    self._start(num_slots=1)
    self.runner.fail_on_step = RuntimeError('device lost')
    self._assert_error(self._generate('1'), _Code.INTERNAL, 'device lost')
    self._until(
      lambda: (
        self.server.modelet.GetStatus(modelet_pb2.GetStatusRequest())
        .models[0]
        .model_status
        == common_pb2.FAILED
      )
    )
    self._assert_error(self._generate('1'), _Code.NOT_FOUND, 'device lost')

  def test_each_suffix_is_scored(self):
    self._start()
    response = self.server.lm.Score(
      lm_pb2.ScoreRequest(model_key=_KEY, prefix='1,2,3', suffix=['4', '5,6']),
      timeout=_TIMEOUT,
    )
    self.assertEqual(list(response.logp), [-13.0, -23.0])

  @parameterized.parameters(
    ('1', [], 'no suffix'),
    ('1', [''], 'token ids'),
    ('', ['1'], 'token ids'),
    ('1,2,3,4,5', ['6,7,8,9'], '8 together'),
  )
  def test_invalid_scores_are_refused(self, prefix, suffix, message):
    self._start()
    self._assert_error(
      self.server.lm.Score.future(
        lm_pb2.ScoreRequest(model_key=_KEY, prefix=prefix, suffix=suffix)
      ),
      _Code.INVALID_ARGUMENT,
      message,
    )


if __name__ == '__main__':
  absltest.main()

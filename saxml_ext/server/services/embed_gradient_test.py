"""Tests of embeddings and gradients over gRPC, with a fake engine."""

from absl.testing import absltest
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


class _Both(gptj.TinyTokenizedFP32):
  INPUT_SEQ_LEN = 6
  BUCKET_KEYS = [6]
  FAIL_ON_INPUT_TRUNCATION = False
  TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME = 'mean'
  TEXT_TO_EMBEDDING_MODEL_METHOD_NAME = 'encode'
  GRADIENT_WRT_INPUT_TENSOR_NAMES = ['embeddings']
  SCORE_EXTRA_INPUTS = {'weight': 1.0}


class EmbedGradientTest(absltest.TestCase):
  def _serve(self, params: type = _Both) -> None:
    self.runner = fake_runner.FakeRunner(num_slots=1)
    self.server = server_fixture.ServerFixture(
      server_fixture.fake_load_fn(params, self.runner)
    )
    self.addCleanup(self.server.stop)
    self.addCleanup(self.runner.gate.set)
    self.server.load(_KEY)

  def _embed(self, text: str, timeout: float = _TIMEOUT, **items: float):
    return self.server.lm.Embed(
      lm_pb2.EmbedRequest(
        model_key=_KEY,
        text=text,
        extra_inputs=common_pb2.ExtraInputs(items=items),
      ),
      timeout=timeout,
    )

  def _gradient(self, prefix: str, suffix: str, **items: float):
    return self.server.lm.Gradient(
      lm_pb2.GradientRequest(
        model_key=_KEY,
        prefix=prefix,
        suffix=suffix,
        extra_inputs=common_pb2.ExtraInputs(items=items),
      ),
      timeout=_TIMEOUT,
    )

  def _assert_error(self, code, words: str, call, *args, **kwargs) -> None:
    with self.assertRaises(grpc.RpcError) as caught:
      call(*args, **kwargs)
    self.assertIs(caught.exception.code(), code, caught.exception.details())
    self.assertIn(words, caught.exception.details())

  def _stats(self) -> dict[str, modelet_pb2.GetStatusResponse.MethodStats]:
    status = self.server.modelet.GetStatus(
      modelet_pb2.GetStatusRequest(include_method_stats=True)
    )
    return {stats.method: stats for stats in status.models[0].method_stats}

  def test_text_is_embedded(self):
    self._serve()
    self.assertEqual(list(self._embed('4,2,7').embedding), [2.0, 1.0, 3.5])
    self.assertEqual(self.runner.threads, {'scheduler'})
    # A text that is too long is truncated like a prompt.
    self.assertLen(self._embed('1,2,3,4,5,6,7,8').embedding, 6)

  def test_gradients_of_a_score_are_returned(self):
    self._serve()
    response = self._gradient('1,2', '3')
    self.assertEqual(list(response.score), [-12.0])
    self.assertEqual(list(response.gradients), ['embeddings'])
    self.assertEqual(
      list(response.gradients['embeddings'].values), [1, -1, 2, -2, 3, -3]
    )
    self._gradient('1,2', '3', weight=2.0)

  def test_invalid_requests_are_refused(self):
    self._serve()
    bad = _Code.INVALID_ARGUMENT
    self._assert_error(bad, 'takes token ids', self._embed, '')
    self._assert_error(bad, 'x', self._embed, '1,x')
    self._assert_error(bad, 'weight', self._embed, '1', weight=1.0)
    self._assert_error(bad, 'other', self._gradient, '1', '2', other=1.0)
    self._assert_error(bad, 'takes token ids', self._gradient, '', '2')
    self._assert_error(bad, 'takes token ids', self._gradient, '1', '')
    self._assert_error(bad, 'at most 6', self._gradient, '1,2,3,4', '5,6,7')

  def test_models_without_the_methods_refuse_them(self):
    self._serve(gptj.TinyTokenizedFP32)
    for method, call in (
      ('lm.embed', lambda: self._embed('1')),
      ('lm.gradient', lambda: self._gradient('1', '2')),
    ):
      self._assert_error(
        _Code.INVALID_ARGUMENT, f'does not serve {method}', call
      )

  def test_calls_are_counted_by_method(self):
    self._serve()
    self._embed('1')
    self._gradient('1', '2')
    self._gradient('1', '2')
    stats = self._stats()
    self.assertEqual(
      list(stats), ['lm.embed', 'lm.generate', 'lm.gradient', 'lm.score']
    )
    self.assertAlmostEqual(stats['lm.embed'].successes_per_second * 60, 1, 3)
    self.assertAlmostEqual(stats['lm.gradient'].successes_per_second * 60, 2, 3)
    self.assertEqual(stats['lm.score'].successes_per_second, 0)

  def test_waiting_requests_are_counted_and_expire(self):
    self._serve()
    self.runner.gate.clear()
    generating = self.server.lm.Generate.future(
      lm_pb2.GenerateRequest(model_key=_KEY, text='1')
    )
    while not self.runner.admissions:
      pass
    waiting = self.server.lm.Embed.future(
      lm_pb2.EmbedRequest(model_key=_KEY, text='1'), timeout=_TIMEOUT
    )
    while not self._stats()['lm.embed'].pending_reqs:
      pass
    self.assertEqual(self._stats()['lm.score'].pending_reqs, 0)
    self._assert_error(
      _Code.DEADLINE_EXCEEDED, '', self._embed, '1', timeout=0.05
    )
    self.runner.gate.set()
    waiting.result()
    generating.result()
    while self._stats()['lm.embed'].pending_reqs:
      pass


if __name__ == '__main__':
  absltest.main()

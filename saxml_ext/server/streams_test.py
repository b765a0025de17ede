"""Streams and completions with the real engine, over gRPC on loopback."""

from absl.testing import absltest
import grpc

from saxml_ext.engine.testing import fast_compile
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.testing import small_model

fast_compile.install()

_BEAMS = '/sax/test/beams'
_SAMPLES = '/sax/test/samples'
_TIMEOUT = 600
_OVERRIDES = {
  'ENABLE_GENERATE_STREAM': 'true',
  'GENERATE_ONLY': 'true',
  'EXTRA_INPUTS': '{"temperature": 1.0, "gumbel_prng_key": 0}',
}


class StreamsTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.server = server_fixture.ServerFixture(loader.load)
    cls.addClassCleanup(cls.server.stop)
    directory = absltest.get_default_test_tmpdir() + '/small'
    small_model.write(directory)
    for key, own in (
      (_BEAMS, {}),
      (_SAMPLES, {'USE_BEAM_SEARCH': 'false', 'NUM_SAMPLES': '2'}),
    ):
      cls.server.load(
        key,
        model_path=small_model.MODEL_PATH,
        checkpoint_path=directory,
        overrides={**_OVERRIDES, **own},
      )

  def _request(self, key: str, text: str) -> lm_pb2.GenerateRequest:
    extra = common_pb2.ExtraInputs(items={'gumbel_prng_key': 7})
    return lm_pb2.GenerateRequest(model_key=key, text=text, extra_inputs=extra)

  def _streamed(self, key: str, text: str) -> list[tuple[str, float]]:
    """Answers as a stock client puts them together."""
    texts: list[bytes] = []
    scores: list[float] = []
    for message in self.server.lm.GenerateStream(
      self._request(key, text), timeout=_TIMEOUT
    ):
      for i, item in enumerate(message.items):
        if i == len(texts):
          texts.append(b'')
          scores.append(0.0)
        self.assertEqual(item.prefix_len, len(texts[i]))
        texts[i] = texts[i][: item.prefix_len] + item.text.encode()
        scores[i] += item.scores[0]
    return list(zip([t.decode() for t in texts], scores))

  def _assert_same(self, streamed, generated) -> None:
    self.assertEqual([t for t, _ in streamed], [t for t, _ in generated])
    for (_, one), (_, other) in zip(streamed, generated):
      self.assertAlmostEqual(one, other, places=4)

  def test_a_stream_is_what_generate_answers(self):
    for key in (_BEAMS, _SAMPLES):
      for text in ('1,2,3', '40,7', '12'):
        generated = [
          (t.text, t.score)
          for t in self.server.lm.Generate(
            self._request(key, text), timeout=_TIMEOUT
          ).texts
        ]
        streamed = self._streamed(key, text)
        if key == _SAMPLES:  # Generate's come best first.
          streamed.sort(key=lambda answer: -answer[1])
        self._assert_same(streamed, generated)

  def _complete(self, key: str, **fields):
    request = completion_pb2.CompleteRequest(model_key=key, **fields)
    request.token_ids.ids.extend([1, 2, 3])
    return list(self.server.completion.Complete(request, timeout=_TIMEOUT))

  def test_completions_are_the_same_streamed_or_not(self):
    for key in (_BEAMS, _SAMPLES):
      (message,) = self._complete(key, n=2, seed=5, logprobs=0)
      streamed = self._complete(key, n=2, seed=5, logprobs=0, stream=True)
      whole: dict[int, completion_pb2.Choice] = {}
      for each in streamed:
        for choice in each.choices:
          told = whole.setdefault(choice.index, completion_pb2.Choice())
          text = told.text + choice.text
          told.MergeFrom(choice)
          told.text = text
      choices = sorted(whole.values(), key=lambda c: -c.score)
      self.assertEqual(streamed[-1].usage, message.usage)
      for one, other in zip(choices, message.choices, strict=True):
        self.assertEqual(one.text, other.text)
        self.assertEqual(one.finish_reason, other.finish_reason)
        self.assertEqual(
          [t.token_id for t in one.tokens], [t.token_id for t in other.tokens]
        )
        self.assertAlmostEqual(one.score, other.score, places=4)
        # The sum is the answer's.
        self.assertAlmostEqual(
          sum(t.logprob for t in other.tokens), other.logprob, places=4
        )

  def test_fewer_beams_of_a_request_are_other_answers(self):
    (wide,) = self._complete(_BEAMS, n=2)
    (narrow,) = self._complete(_BEAMS, num_beams=1)
    self.assertLen(wide.choices, 2)
    self.assertLen(narrow.choices, 1)
    with self.assertRaises(grpc.RpcError) as caught:
      self._complete(_BEAMS, num_beams=3)
    self.assertIs(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
    self.assertIn('num_beams is 3', caught.exception.details())


if __name__ == '__main__':
  absltest.main()

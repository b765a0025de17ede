"""Tests of streams and completions with the real engine, over gRPC."""

import tempfile

from absl.testing import absltest
import grpc

from saxml_ext.protobuf import completion_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.testing import small_model

_KEY = '/sax/test/small'
_TIMEOUT = 600


class StreamsTest(absltest.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.server = server_fixture.ServerFixture(loader.load)
    cls.addClassCleanup(cls.server.stop)
    directory = cls.enterClassContext(tempfile.TemporaryDirectory())
    small_model.write(directory)
    cls.server.load(
      _KEY,
      model_path=small_model.MODEL_PATH,
      checkpoint_path=directory,
      overrides={
        'ENABLE_GENERATE_STREAM': 'true',
        'GENERATE_ONLY': 'true',
        # Beam search is the default, and requests may ask for samples.
        'MIXED_SEARCH': 'true',
        'NUM_SAMPLES': '2',
        'MAX_LOGPROBS': '2',
        'EXTRA_INPUTS': '{"temperature": 1.0}',
      },
    )

  def _streamed(self, text: str) -> list[tuple[str, float]]:
    """Returns the answers that a stock client assembles from a stream."""
    texts: list[bytes] = []
    scores: list[float] = []
    for message in self.server.lm.GenerateStream(
      lm_pb2.GenerateRequest(model_key=_KEY, text=text), timeout=_TIMEOUT
    ):
      for i, item in enumerate(message.items):
        if i == len(texts):
          texts.append(b'')
          scores.append(0.0)
        self.assertEqual(item.prefix_len, len(texts[i]))
        texts[i] = texts[i][: item.prefix_len] + item.text.encode()
        scores[i] += item.scores[0]
    return list(zip([t.decode() for t in texts], scores))

  def test_stream_equals_generate(self):
    for text in ('1,2,3', '40,7', '12'):
      answer = self.server.lm.Generate(
        lm_pb2.GenerateRequest(model_key=_KEY, text=text), timeout=_TIMEOUT
      )
      streamed = self._streamed(text)
      self.assertEqual([t for t, _ in streamed], [t.text for t in answer.texts])
      for (_, score), decoded in zip(streamed, answer.texts):
        self.assertAlmostEqual(score, decoded.score, places=4)

  def _complete(self, **fields):
    request = completion_pb2.CompleteRequest(model_key=_KEY, **fields)
    request.token_ids.ids.extend([1, 2, 3])
    return list(self.server.completion.Complete(request, timeout=_TIMEOUT))

  def test_completions_are_the_same_streamed_or_not(self):
    for beams in (True, False):
      settings = dict(use_beam_search=beams, n=2, fallback_seed=5, logprobs=2)
      (message,) = self._complete(**settings)
      streamed = self._complete(**settings, stream=True)
      whole: dict[int, completion_pb2.Choice] = {}
      for part in streamed:
        for choice in part.choices:
          joined = whole.setdefault(choice.index, completion_pb2.Choice())
          text = joined.text + choice.text
          joined.MergeFrom(choice)
          joined.text = text
      choices = sorted(whole.values(), key=lambda c: -c.score)
      self.assertEqual(streamed[-1].usage, message.usage)
      for one, other in zip(choices, message.choices, strict=True):
        self.assertEqual(one.text, other.text)
        self.assertEqual(one.finish_reason, other.finish_reason)
        self.assertEqual(
          [t.token_id for t in one.tokens], [t.token_id for t in other.tokens]
        )
        self.assertAlmostEqual(one.score, other.score, places=4)
        # The log-probabilities of the tokens add up to that of the answer.
        self.assertAlmostEqual(
          sum(t.logprob for t in other.tokens), other.logprob, places=4
        )
        for token in other.tokens:
          first, second = token.alternatives
          self.assertGreaterEqual(first.logprob, second.logprob)
          self.assertGreaterEqual(first.logprob, token.logprob)
          self.assertEqual(first.text, str(first.token_id))

  def test_requests_may_lower_but_not_raise_limits(self):
    (wide,) = self._complete(n=2)
    (narrow,) = self._complete(num_beams=1)
    self.assertLen(wide.choices, 2)
    self.assertLen(narrow.choices, 1)
    for fields, message in (
      (dict(num_beams=3), 'num_beams is 3'),
      (dict(logprobs=3), 'logprobs is 3'),
      (dict(use_beam_search=False, n=3), 'n is 3, but must be between 1 and 2'),
    ):
      with self.assertRaises(grpc.RpcError) as caught:
        self._complete(**fields)
      self.assertIs(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
      self.assertIn(message, caught.exception.details())

  def test_sample_settings_select_samples(self):
    (drawn,) = self._complete(seed=5)
    (same,) = self._complete(seed=5, use_beam_search=False)
    (beams,) = self._complete()
    self.assertEqual(drawn.choices[0].text, same.choices[0].text)
    self.assertNotEqual(drawn.choices[0].text, beams.choices[0].text)

  def test_describe_reports_the_limits(self):
    description = self.server.completion.Describe(
      completion_pb2.DescribeRequest(model_key=_KEY)
    )
    self.assertEqual(
      (
        description.max_beams,
        description.max_samples,
        description.max_logprobs,
      ),
      (2, 2, 2),
    )
    self.assertEqual(description.model_path, small_model.MODEL_PATH)
    self.assertFalse(description.has_tokenizer)


if __name__ == '__main__':
  absltest.main()

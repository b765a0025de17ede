"""Tests of a model server with the real engine, over gRPC on loopback."""

from absl.testing import absltest
import grpc

from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import lm_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.server.loading import loader
from saxml_ext.server.testing import server_fixture
from saxml_ext.server.testing import small_model

_KEY = '/sax/test/small'
_TIMEOUT = 600


class ModelServerTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.server = server_fixture.ServerFixture(loader.load)
    self.addCleanup(self.server.stop)

  def _generate(self, text: str, **items: float) -> grpc.Future:
    return self.server.lm.Generate.future(
      lm_pb2.GenerateRequest(
        model_key=_KEY,
        text=text,
        extra_inputs=common_pb2.ExtraInputs(items=items),
      ),
      timeout=_TIMEOUT,
    )

  def test_embed_and_gradient_answer(self):
    self.server.load(
      _KEY,
      model_path=small_model.MODEL_PATH,
      checkpoint_path=small_model.write(self.create_tempdir().full_path),
      overrides={
        'TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME': '"mean"',
        'TEXT_TO_EMBEDDING_MODEL_METHOD_NAME': '"encode"',
        'GRADIENT_WRT_INPUT_TENSOR_NAMES': '["embeddings"]',
      },
    )
    dim = small_model.SHAPE.model_dim
    embeddings = [
      self.server.lm.Embed(
        lm_pb2.EmbedRequest(model_key=_KEY, text=text), timeout=_TIMEOUT
      ).embedding
      for text in ('1,2,3', '4,5,6')
    ]
    self.assertEqual([len(embedding) for embedding in embeddings], [dim, dim])
    self.assertNotEqual(*embeddings)
    gradient = self.server.lm.Gradient(
      lm_pb2.GradientRequest(model_key=_KEY, prefix='1,2', suffix='3,4,5'),
      timeout=_TIMEOUT,
    )
    score = self.server.lm.Score(
      lm_pb2.ScoreRequest(model_key=_KEY, prefix='1,2', suffix=['3,4,5']),
      timeout=_TIMEOUT,
    )
    self.assertAlmostEqual(gradient.score[0], score.logp[0], places=4)
    self.assertLen(gradient.gradients['embeddings'].values, 5 * dim)

  def test_model_is_loaded_served_and_unloaded(self):
    self.server.load(
      _KEY,
      model_path=small_model.MODEL_PATH,
      checkpoint_path=small_model.write(self.create_tempdir().full_path),
      overrides={'MAX_DECODE_STEPS': '6'},
    )

    prompts = [f'{i},{i + 7},{2 * i}' for i in range(10)]
    alone = [self._generate(p).result() for p in prompts]
    together = [c.result() for c in [self._generate(p) for p in prompts]]
    # The other requests in the batch do not change the answer.
    for one, other in zip(alone, together):
      self.assertEqual(
        [t.text for t in one.texts], [t.text for t in other.texts]
      )
    self.assertGreater(len({r.texts[0].text for r in alone}), 5)
    for response in alone:
      ids = [int(i) for i in response.texts[0].text.split(',')]
      self.assertBetween(len(ids), 2, 6)
      self.assertNotIn(small_model.EOS_ID, ids[:-1])
      self.assertGreater(response.texts[0].score, response.texts[1].score)

    short = self._generate(prompts[0], per_example_max_decode_steps=3).result()
    self.assertLen(short.texts[0].text.split(','), 3)

    scores = self.server.lm.Score(
      lm_pb2.ScoreRequest(model_key=_KEY, prefix='1,2', suffix=['3', '3,4'])
    ).logp
    self.assertLess(scores[1], scores[0])
    self.assertLess(scores[0], 0)

    self.server.modelet.Unload(modelet_pb2.UnloadRequest(model_key=_KEY))
    with self.assertRaises(grpc.RpcError) as caught:
      self._generate('1').result()
    self.assertIs(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

  def test_unsupported_params_fail_with_the_reason(self):
    with self.assertRaises(grpc.RpcError) as caught:
      self.server.load(
        _KEY,
        model_path=small_model.MODEL_PATH,
        overrides={'QUANTIZATION': '"int2"'},
      )
    self.assertIs(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
    (model,) = self.server.modelet.GetStatus(
      modelet_pb2.GetStatusRequest(include_failure_reasons=True)
    ).models
    self.assertEqual(model.model_status, common_pb2.FAILED)
    self.assertIn("QUANTIZATION='int2'", model.failure_reason)


if __name__ == '__main__':
  absltest.main()

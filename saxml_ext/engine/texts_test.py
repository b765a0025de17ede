"""Compares scores, embeddings and gradients with transformers and torch."""

import dataclasses
import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import torch

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.testing import small_gptj

_ENGINE = config_lib.EngineConfig(
  eos_id=0,
  num_slots=1,
  max_prompt=20,
  prompt_buckets=(8, 20),
  max_new_tokens=7,
  min_new_tokens=0,
  num_beams=1,
)
_PREFIX = np.asarray([5, 9, 2, 90, 33, 7, 7, 12, 4, 60, 1], np.int32)
_SUFFIX = np.asarray([8, 61, 3], np.int32)


@functools.cache
def _reference():
  return small_gptj.model()


@functools.cache
def _runner(quantization=None, **settings):
  variables = small_gptj.pax_variables(_reference())
  config = config_lib.ModelConfig.from_pax(variables, rotary_dim=8)
  weights = weights_lib.from_pax(variables, config, 'float32', quantization)
  engine = dataclasses.replace(_ENGINE, **settings)
  return runner_lib.Runner(weights, config, engine)


def _score(embeddings, tokens, start):
  """Returns the reference's log p of tokens[start:].

  Args:
    embeddings: The embeddings of the tokens, [1, T, D].
    tokens: The tokens, [T].
    start: The first index.
  """
  logits = _reference()(inputs_embeds=embeddings).logits[0, :-1]
  log_probs = torch.log_softmax(logits, -1)
  chosen = log_probs[torch.arange(len(tokens) - 1), tokens[1:]]
  return chosen[start - 1 :].sum()


class TextsTest(parameterized.TestCase):
  @parameterized.parameters(1, 8, 11)
  def test_embeddings_are_those_of_transformers(self, length):
    tokens = _PREFIX[:length]
    with torch.no_grad():
      hidden = _reference().transformer(torch.tensor(tokens[None]).long())
    hidden = hidden.last_hidden_state[0].numpy()
    for name, expected in (
      ('last_token', hidden[-1]),
      ('mean', hidden.mean(0)),
    ):
      actual = _runner(embedding=name).embed(tokens)
      self.assertEqual(actual.dtype, np.float32)
      np.testing.assert_allclose(actual, expected, atol=2e-5)

  @parameterized.parameters(None, 'int8_weights')
  def test_gradients_are_those_of_autograd(self, quantization):
    runner = _runner(quantization, gradients=('embeddings',), kv_dtype='int8')
    tokens = np.concatenate([_PREFIX, _SUFFIX])
    embeddings = _reference().transformer.wte.weight[tokens][None]
    embeddings = embeddings.detach().requires_grad_()
    score = _score(embeddings, torch.tensor(tokens).long(), len(_PREFIX))
    score.backward()
    value, actual = runner.gradient(_PREFIX, _SUFFIX)
    expected = embeddings.grad[0].numpy()
    self.assertEqual(actual.keys(), {'embeddings'})
    self.assertEqual(actual['embeddings'].shape, expected.shape)
    size = np.abs(expected).max()
    error = np.abs(actual['embeddings'] - expected).max() / size
    # The gradient of 8-bit weights differs, but not by much.
    self.assertLess(error, 0.2 if quantization else 1e-4)
    self.assertAlmostEqual(
      value, score.item(), delta=2 if quantization else 1e-3
    )
    np.testing.assert_array_equal(actual['embeddings'][-1], 0)

  def test_gradients_of_the_shortest_sequences(self):
    runner = _runner(
      gradients=('embeddings',),
      max_prompt=2,
      prompt_buckets=(2,),
      max_new_tokens=1,
    )
    value, actual = runner.gradient(_PREFIX[:2], _SUFFIX[:1])
    expected = runner.score(_PREFIX[:2], _SUFFIX[:1])
    self.assertAlmostEqual(value, expected, places=3)
    self.assertEqual(actual['embeddings'].shape, (3, 64))

  def test_disabled_methods_are_refused(self):
    runner = _runner()
    with self.assertRaisesRegex(ValueError, 'served without embeddings. Set'):
      runner.embed(_PREFIX)
    with self.assertRaisesRegex(ValueError, 'served without gradients. Set'):
      runner.gradient(_PREFIX, _SUFFIX)
    with self.assertRaisesRegex(ValueError, 'activations are rounded to int8'):
      _runner('int8', gradients=('embeddings',))
    with self.assertRaisesRegex(ValueError, "gradients is .'head'"):
      dataclasses.replace(_ENGINE, gradients=('head',))
    with self.assertRaisesRegex(ValueError, "embedding is 'first'"):
      dataclasses.replace(_ENGINE, embedding='first')

  def test_texts_out_of_limits_are_refused(self):
    runner = _runner(embedding='mean')
    with self.assertRaisesRegex(ValueError, '21 tokens, above the limit of 20'):
      runner.embed(np.ones(21, np.int32))
    with self.assertRaisesRegex(ValueError, '28 tokens, above the limit of 27'):
      runner.score(np.ones(20, np.int32), np.ones(8, np.int32))


if __name__ == '__main__':
  absltest.main()

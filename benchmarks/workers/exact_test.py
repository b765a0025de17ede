"""Tests the computation layer by layer against the whole model."""

from absl.testing import absltest
import jax.numpy as jnp
import numpy as np

from benchmarks import random_model
from benchmarks.workers import exact
from benchmarks.workers import streamed
from saxml_ext.engine import model
from saxml_ext.engine import weights as weights_lib


class ExactTest(absltest.TestCase):
  def test_tokens_match_the_whole_model(self):
    root = self.create_tempdir().full_path
    stored = streamed.Stored(random_model.write(root, 3, 32, 2, 8, 64))
    weights = weights_lib.from_pax(stored.variables, stored.config)
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 64, n).tolist() for n in (9, 5, 12)]
    starts = [1, 3, 11]
    expected = []
    for sequence, start in zip(sequences, starts):
      tokens = jnp.asarray([sequence])
      x, _ = model.prefill(weights, stored.config, tokens, 'float32')
      best = model.logits(weights, stored.config, x[0]).argmax(-1)
      expected.append(best[start - 1 : -1].tolist())
    best_tokens = exact.top1(stored, sequences, starts)
    self.assertEqual([len(f) for f in best_tokens], [8, 2, 1])
    self.assertEqual(best_tokens, expected)


if __name__ == '__main__':
  absltest.main()

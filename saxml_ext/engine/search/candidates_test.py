"""Compares the candidates of the CPU kernel with those of XLA.

The test of the kernel alone is kernels/candidates_test.cc.
"""

import dataclasses
import functools
from unittest import mock

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine.kernels import kernels
from saxml_ext.engine.search import beam
from saxml_ext.engine.search import search


class CandidatesTest(absltest.TestCase):
  def test_the_kernel_and_xla_find_the_same(self):
    rng = np.random.default_rng(0)
    slots, beams, vocabulary, count = 3, 30, 1000, 60
    logits = rng.normal(size=(slots, beams, vocabulary)).astype(np.float32) * 4
    logits[:, :, ::3] = np.round(logits[:, :, ::3])  # Ties.
    logits[:, 1] = logits[:, 0]
    scores = -rng.random((slots, beams)).astype(np.float32)
    scores[:, 1] = scores[:, 0]
    options = search.options_like(slots, 2, 8, beams)
    stop_ids = np.full((slots, 2), -1, np.int32)
    stop_ids[0] = logits[0, 0].argmax(), 7
    min_new = np.full(slots, 4, np.int32)
    options = dataclasses.replace(options, stop_ids=stop_ids, min_new=min_new)
    state = beam.BeamRule(beams).initial(options, 8)
    state = dataclasses.replace(state, scores=jnp.asarray(scores))
    active = jnp.asarray([beams, beams, 7], jnp.int32)

    @functools.partial(jax.jit, static_argnums=0)
    def find(usable, logits, active):
      with mock.patch.object(kernels, 'usable', return_value=usable):
        return beam.find_candidates(state, logits, count, active)

    got, expected = find(True, logits, active), find(False, logits, active)
    for name in ('rows', 'tokens'):
      np.testing.assert_array_equal(
        getattr(got, name), getattr(expected, name), name
      )
    for name in ('sums', 'log_probs'):
      np.testing.assert_allclose(
        getattr(got, name), getattr(expected, name), atol=2e-6, err_msg=name
      )
    np.testing.assert_array_equal(got.peak[:2], expected.peak[:2])
    self.assertLess(got.rows[2].max(), 7)
    self.assertNotIn(stop_ids[0, 0], got.tokens[0])


if __name__ == '__main__':
  absltest.main()

"""Tests that praxis finds the restored names, with their old behavior."""

import subprocess
import sys

from absl.testing import absltest
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.pax import compat

compat.install_praxis()  # Before the first import of praxis.

from lingvo.core import nested_map
from praxis import base_hyperparams
from praxis import decoder_utils
from praxis import pax_fiddle
from praxis.layers import linears
from praxis.layers import models


class CompatTest(absltest.TestCase):
  def test_tree_map_leaves_none_alone(self):
    first, second = {'a': 1, 'b': None}, {'a': 2, 'b': [3, 4]}
    self.assertEqual(
      jax.tree_map(lambda x, y: x + y, first, second), {'a': 3, 'b': None}
    )
    # praxis' lazy prefix makes this call. It requests None values as leaves.
    seen = jax.tree_map(
      lambda x: 'none' if x is None else x, first, is_leaf=lambda x: x is None
    )
    self.assertEqual(seen, {'a': 1, 'b': 'none'})

  def test_two_stage_topk(self):
    logits = jnp.asarray(np.arange(12.0).reshape(1, 2, 6))
    _, _, values, where = decoder_utils.two_stage_topk(
      logits, jnp.asarray([[0.0, -100.0]]), [5], 2
    )
    # Token 5 is terminal. Token 4 of the first beam has the best score of the
    # others.
    np.testing.assert_array_equal(values, [[4.0, -90.0]])
    np.testing.assert_array_equal(where, [[1, 3]])

  def test_nested_maps_and_printing_need_no_tensorflow(self):
    made = nested_map.NestedMap.FromNestedDict({'a': {'b': object}})
    self.assertIs(made.a.b, object)
    layer = pax_fiddle.Config(linears.Linear, input_dims=3, output_dims=2)
    text = base_hyperparams.nested_struct_to_text(layer)
    self.assertIn('input_dims : 3', text)
    self.assertIn('lm_tpl', str(pax_fiddle.Config(models.LanguageModel)))

  def test_default_lambdas_are_found(self):
    one = pax_fiddle.auto_config(lambda: [1, 2])
    self.assertEqual(one.as_buildable(), [1, 2])
    several = pax_fiddle.auto_config(
      lambda: [
        linears.Linear(input_dims=3),
      ]
    )
    self.assertIsInstance(several.as_buildable()[0], pax_fiddle.Config)
    with self.assertRaisesRegex(ValueError, 'multiple lambdas found on line'):
      pax_fiddle.auto_config((lambda: 1, lambda: 2)[0])

  def test_late_installation_is_reported(self):
    code = (
      'import sys, types; sys.modules["praxis.decoder_utils"] = types;'
      'from saxml_ext.pax import compat as c; c.install_praxis()'
    )
    late = subprocess.run(
      [sys.executable, '-c', code],
      env={'PYTHONPATH': ':'.join(sys.path), 'JAX_PLATFORMS': 'cpu'},
      capture_output=True,
      text=True,
      check=False,
    )
    self.assertIn(
      'imported before compat.install_praxis(). Call it', late.stderr
    )


if __name__ == '__main__':
  absltest.main()

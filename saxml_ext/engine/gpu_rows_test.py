"""Compares layers of a decode step on a GPU, interpreted, with XLA's."""

import contextlib

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import architecture as architecture_lib
from saxml_ext.engine import components
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import gpu_rows
from saxml_ext.engine import logical
from saxml_ext.engine import rotary
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.kernels.tpu import block_list
from saxml_ext.engine.testing import random_model

_SIZES = dict(
  num_layers=1,
  model_dim=48,
  num_heads=4,
  head_dim=12,
  hidden_dim=40,
  vocab_size=64,
)
_GPTJ = config_lib.ModelConfig(**_SIZES, rotary_dim=8)
_LLAMA = config_lib.ModelConfig(
  **_SIZES,
  num_kv_heads=2,
  rotary_dim=12,
  architecture=architecture_lib.Architecture(
    residual=architecture_lib.SEQUENTIAL,
    activation=architecture_lib.SILU,
    gated=True,
    norm=architecture_lib.RMS_NORM,
    biases=(),
  ),
)
_SLOTS, _STEPS, _ROW = 5, 4, 2


@contextlib.contextmanager
def _on_gpu():
  with decode_attention.interpreted(block_list.Blocks(16, 16, 8)):
    with logical.targeting('gpu'):
      yield


def _weights(model, dtype, quantization=None) -> weights_lib.Weights:
  variables = random_model.variables(model)
  return weights_lib.from_pax(variables, model, dtype, quantization)


class GpuRowsTest(parameterized.TestCase):
  @parameterized.parameters(
    (_GPTJ, 'float32', None, 2, 'float32', 1e-5),
    (_GPTJ, 'float32', 'int8', 2, 'int8', 0.02),
    (_LLAMA, 'float32', 'int8', 1, 'bfloat16', 0.02),
    (_LLAMA, 'bfloat16', None, 1, 'bfloat16', 0.02),
    (_LLAMA, 'float32', 'fp8', 1, 'bfloat16', 0.02),
  )
  def test_layer_equals_that_of_xla(
    self, model, dtype, quantization, beams, kv_dtype, tolerance
  ):
    """Compares a layer with gate and up as one product, and the KV written."""
    weights = _weights(model, dtype, quantization)
    rng = np.random.default_rng(0)
    count, heads, width = 3, model.kv_heads, model.head_dim

    def draw(*shape: int) -> jax.Array:
      return jnp.asarray(rng.normal(size=shape), jnp.float32)

    x = draw(count, beams, model.model_dim)
    mixed = draw(count, model.num_heads, beams, width)
    rows = draw(_SLOTS, heads, _STEPS * beams, width)
    kv = cache.rows_as(rows, kv_dtype)
    current = cache.Block((kv,), (kv,))
    slots = jnp.asarray([4, 0, 2], jnp.int32)
    turns = tuple(
      table[np.array([3, 0, 7])][:, None, None]
      for table in rotary.table(8, model.rotary_dim, model.rotary_base)
    )
    layer, at = weights.layers[0], jnp.int32(_ROW * beams)

    @jax.jit
    def by_xla(layer, x, mixed, current):
      whole = components.Whole(model)
      h, qkv = whole.project(layer, x)
      q, k, v = components.queries_keys_values(qkv, layer, model)
      written = cache.write_step(
        current, 0, components.rotate(k, *turns), v, at, kv_dtype, slots
      )
      queries = attention.folded(components.rotate(q, *turns))
      return whole.finish(layer, x, h, mixed)[0], queries, written

    @jax.jit
    def by_rows(layer, x, mixed, current):
      operations = gpu_rows.GpuRows.for_weights(weights, model, (count, beams))
      residual = operations.split(x)
      h, qkv = operations.project(layer, residual)
      queries, written = operations.write_step(
        qkv, turns, current, 0, at, slots
      )
      residual, *_ = operations.finish(layer, residual, h, mixed)
      return operations.join(residual), queries, written

    expected, queries, written = by_xla(layer, x, mixed, current)
    with _on_gpu():
      self.assertTrue(gpu_rows.applies(weights, model))
      got, got_queries, got_written = by_rows(layer, x, mixed, current)
    self._check(got, expected, tolerance)
    self._check(got_queries, queries, tolerance)
    for a, b in zip(jax.tree.leaves(got_written), jax.tree.leaves(written)):
      a, b = (np.asarray(y, np.float32) for y in (a, b))
      # A code may differ by 1, because the order of sums differs.
      near = 1 if a.ndim == 4 and kv_dtype == 'int8' else tolerance * 4
      np.testing.assert_allclose(a[slots], b[slots], atol=near)
      untouched = np.asarray(jax.tree.leaves(current)[0], np.float32)
      if a.shape == untouched.shape:
        np.testing.assert_array_equal(a[[1, 3]], untouched[[1, 3]])

  def _check(self, got, expected, tolerance) -> None:
    self.assertEqual(got.shape, expected.shape)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=tolerance * scale)

  def test_products_are_split_to_fill_a_card(self):
    def parts(rows: int, depth: int, outputs: int) -> int:
      x = jax.ShapeDtypeStruct((rows, depth), jnp.bfloat16)
      w = jax.ShapeDtypeStruct((depth, outputs), jnp.bfloat16)

      def run(x, w):
        return gpu_rows._parts(x, [w], False, jnp.float32)

      return jax.eval_shape(run, x, w).shape[0]

    self.assertEqual(parts(8, 4096, 4096), 8)
    self.assertEqual(parts(8, 4096, 28672), 1)
    self.assertEqual(parts(160, 4096, 4096), 2)
    self.assertEqual(parts(1024, 4096, 4096), 1)
    self.assertEqual(parts(8, 4098, 4096), 2)

  def test_other_layers_are_left_to_xla(self):
    def applies(model, quantization=None) -> bool:
      weights = abstract_weights.shapes(model, 'float32', quantization)
      weights = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), weights)
      return gpu_rows.applies(weights, model)

    with _on_gpu():
      self.assertTrue(applies(_LLAMA, 'int8'))
      self.assertFalse(applies(_LLAMA, 'int8_weights'))
    self.assertFalse(applies(_LLAMA))


if __name__ == '__main__':
  absltest.main()

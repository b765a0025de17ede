"""Compares the TPU kernel in interpret mode with XLA."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import sharding
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.kernels.tpu import block_list as work_lib
from saxml_ext.engine.numerics import quant

jax.config.update('jax_num_cpu_devices', 4)

_MODEL = config_lib.ModelConfig(
  num_layers=2,
  model_dim=64,
  num_heads=4,
  head_dim=16,
  hidden_dim=96,
  rotary_dim=8,
  vocab_size=64,
)
_SLOTS, _BEAMS, _STEPS, _PROMPT = 8, 4, 16, 64
_BLOCKS = work_lib.Blocks(prompt=24, suffix=16, chunk=8)


def _block(rng: np.random.Generator, length: int, dtype: str, suffix: bool):
  """Returns a stacked block with random contents."""

  def fill(kv: cache.KV) -> cache.KV:
    x = jnp.asarray(rng.normal(size=kv.shape), jnp.float32)
    if isinstance(kv, quant.QuantizedRows):
      return quant.quantize_along(x, kv.axis).compact()
    return x.astype(kv.dtype)

  shape = cache.empty_block(_MODEL, _SLOTS, length, dtype, True, suffix)
  return cache.Block(fill(shape.keys), fill(shape.values))


def _ancestry(rng: np.random.Generator, ages: np.ndarray, row: int):
  """Returns the ancestry in a ring that has wrapped, [C, K, W] int8.

  Args:
    rng: The source of random numbers.
    ages: The number of steps that each slot has made.
    row: The row of the current step.
  """
  shape = len(ages), _BEAMS, _STEPS
  ancestry = rng.integers(0, _BEAMS, shape)
  ancestry[:, :, ::3] = ancestry[:, :1, ::3]  # Shared by all beams.
  age = (row - np.arange(_STEPS)) % _STEPS
  ancestry = np.where(age > ages[:, None, None], steps_lib.NOTHING, ancestry)
  ancestry[:, :, row] = np.arange(_BEAMS)  # Keys of this step.
  return jnp.asarray(ancestry, jnp.int8)


class BeamAttentionTest(parameterized.TestCase):
  def _check(
    self, dtype, lengths, slots=None, mesh=None, tolerance=1e-5, cap=None
  ):
    rng = np.random.default_rng(0)
    count = len(lengths)
    prompts = _block(rng, _PROMPT, dtype, suffix=False)
    current = _block(rng, _STEPS * _BEAMS, dtype, suffix=True)
    ages = np.arange(count) * 5 % _STEPS
    ancestry = _ancestry(rng, ages, row=3)
    shape = count, _MODEL.num_heads, _BEAMS, _MODEL.head_dim
    queries = jnp.asarray(rng.normal(size=shape), jnp.float32)
    args = queries, jnp.asarray(lengths, jnp.int32), ancestry, prompts, current

    def run(over, layer):
      def attend(queries, lengths, ancestry, prompts, current):
        history = decode_attention.History(
          lengths, [prompts], [], [ancestry], slots
        )
        return over(history, cap)(queries, current, layer)

      return jax.jit(attend)

    waited = np.asarray(lengths) >= 0
    for layer in range(_MODEL.num_layers) if mesh is None else (1,):
      expected = run(decode_attention.by_xla, layer)(*args)[waited]
      with decode_attention.interpreted(_BLOCKS):
        if mesh is None:
          got = run(decode_attention.over, layer)(*args)
        else:
          with jax.set_mesh(sharding.make_mesh(mesh)):
            got = run(decode_attention.over, layer)(*args)
      scale = np.abs(expected).max()
      np.testing.assert_allclose(
        got[waited], expected, atol=tolerance * scale, err_msg=f'layer {layer}'
      )
      np.testing.assert_array_equal(got[~waited], 0)

  @parameterized.parameters(
    ('float32', 1e-5), ('bfloat16', 2e-2), ('int8', 2e-2)
  )
  def test_kernel_agrees_with_xla(self, dtype, tolerance):
    """Checks lengths at the edges of blocks, and slots with unused results."""
    lengths = [1, -1, 16, 17, 64, 33, -1, 48]
    self._check(dtype, lengths, tolerance=tolerance)

  def test_capped_scores(self):
    """Checks a cap below the standard deviation of the scores, which is 1."""
    self._check('float32', [1, 17, 64, -1, 33, 8, 2, 50], cap=0.5)

  def test_some_slots(self):
    slots = jnp.asarray([5, 0, 7], jnp.int32)
    self._check('float32', [20, -1, 40], slots)

  def test_only_one_slot_has_a_request(self):
    self._check('float32', [3, *[-1] * 7])

  @parameterized.parameters(((1, 1, 4),), ((1, 2, 2),), ((2, 2, 1),))
  def test_split_among_devices(self, mesh):
    # With two or four parts of the slots, the results of one part are unused.
    lengths = [1, 16, 17, 64, 33, 2, -1, -1]
    self._check('int8', lengths, mesh=mesh, tolerance=2e-2)

  def test_other_caches_are_left_to_xla(self):
    rng = np.random.default_rng(0)
    block = _block(rng, 128, 'float32', suffix=False)
    self.assertFalse(decode_attention.usable(block, 128))  # Heads of 16.
    wide = cache.Block(*[jnp.zeros((1, 1, 1, 128, 128))] * 2)
    self.assertTrue(decode_attention.usable(wide, 128))
    self.assertFalse(decode_attention.usable(wide, 64))
    layer = cache.Block(*[(jnp.zeros((1, 1, 128, 128)),)] * 2)
    self.assertFalse(decode_attention.usable(layer, 128))


if __name__ == '__main__':
  absltest.main()

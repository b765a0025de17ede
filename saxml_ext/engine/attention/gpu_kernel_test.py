"""Compares the GPU kernel in interpret mode with XLA, and lowers it for CUDA."""

import contextlib
import re

from absl.testing import absltest
from absl.testing import parameterized
import jax
import jax.numpy as jnp
import numpy as np

from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import logical
from saxml_ext.engine import platform_configs
from saxml_ext.engine import program_keys
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import steps as steps_lib
from saxml_ext.engine.kernels.gpu import decode_kernel
from saxml_ext.engine.kernels.tpu import block_list as work_lib

jax.config.update('jax_num_cpu_devices', 4)

_SLOTS, _STEPS, _PROMPT = 8, 16, 64
_BLOCKS = work_lib.Blocks(prompt=32, suffix=16, chunk=16)
# A result, its operation and the first operand of a conditional.
_OPERATION = re.compile(r'(%\w+)(?::\d+)? = "?([\w.]+)"?(?:\((%\w+)\))?')
_TRITON = '__gpu$xla.gpu.triton'


def _block(rng, heads: int, width: int, length: int, dtype: str, suffix: bool):
  """Returns a block of one layer with random contents."""
  shape = (_SLOTS, heads, length, width)
  keys, values = (jnp.asarray(rng.normal(size=shape), 'float32') for _ in '12')
  if suffix:
    keys = cache.rows_as(keys, dtype)
  else:
    keys = cache.keys_as(keys.swapaxes(2, 3), dtype)
  return cache.Block((keys,), (cache.rows_as(values, dtype),))


def _ancestry(rng, count: int, beams: int, row: int) -> jax.Array:
  """Returns the ancestry in a ring that has wrapped, [C, K, W] int8."""
  ancestry = rng.integers(0, beams, (count, beams, _STEPS))
  ages = np.arange(count) * 5 % _STEPS
  age = (row - np.arange(_STEPS)) % _STEPS
  ancestry = np.where(age > ages[:, None, None], steps_lib.NOTHING, ancestry)
  ancestry[:, :, row] = np.arange(beams)  # Keys of this step.
  return jnp.asarray(ancestry, jnp.int8)


class GpuKernelTest(parameterized.TestCase):
  def _check(
    self,
    dtype,
    lengths,
    tolerance,
    shape=(2, 4, 1, 16),
    slots=None,
    mesh=None,
    cap=None,
  ):
    """Compares with XLA; `shape` is N, K, G and H."""
    heads, beams, group, width = shape
    rng = np.random.default_rng(0)
    count = len(lengths)
    prompts = _block(rng, heads, width, _PROMPT, dtype, suffix=False)
    current = _block(rng, heads, width, _STEPS * beams, dtype, suffix=True)
    queries = rng.normal(size=(group, count, heads, beams, width))
    queries = attention.folded(jnp.asarray(queries, jnp.float32))
    lengths = jnp.asarray(lengths, jnp.int32)
    ancestry = _ancestry(rng, count, beams, row=3)

    def attend(over, *more):
      def run(queries, lengths, ancestry, prompts, current):
        history = decode_attention.History(
          lengths, [prompts], [], [ancestry], slots
        )
        return over(history, cap, *more)(queries, current, 0)

      return jax.jit(run)(queries, lengths, ancestry, prompts, current)

    waited = np.asarray(lengths) >= 0
    expected = attend(decode_attention.by_xla)[waited]
    with contextlib.ExitStack() as stack:
      stack.enter_context(logical.targeting('gpu'))
      stack.enter_context(decode_attention.interpreted(_BLOCKS))
      if mesh is not None:
        stack.enter_context(jax.set_mesh(sharding.make_mesh(mesh)))
      got = attend(decode_attention.over, group)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got[waited], expected, atol=tolerance * scale)
    np.testing.assert_array_equal(got[~waited], 0)

  @parameterized.parameters(
    ('float32', (2, 4, 1, 16), 1e-5),
    ('float32', (1, 2, 12, 24), 1e-5),
    ('bfloat16', (2, 1, 4, 16), 2e-2),
    ('int8', (2, 2, 2, 16), 2e-2),
    ('int8', (1, 1, 1, 32), 2e-2),
  )
  def test_kernel_agrees_with_xla(self, dtype, shape, tolerance):
    """Checks lengths at the edges of blocks, and slots with unused results."""
    lengths = [1, -1, 16, 17, 64, 33, -1, 48]
    self._check(dtype, lengths, tolerance, shape)

  def test_capped_scores_of_some_slots(self):
    slots = jnp.asarray([5, 0, 7], jnp.int32)
    self._check('float32', [20, -1, 40], 1e-5, slots=slots, cap=0.5)

  def test_joins_many_blocks(self):
    with self._blocks_joined(2):
      self._check('float32', [64, *[-1] * 7], 1e-5)

  @contextlib.contextmanager
  def _blocks_joined(self, count):
    old, decode_kernel._JOINED = decode_kernel._JOINED, count
    try:
      yield
    finally:
      decode_kernel._JOINED = old

  def test_split_among_devices(self):
    lengths = [1, 16, 17, 64, 33, 2, -1, -1]
    self._check('int8', lengths, 2e-2, mesh=(1, 2, 2))

  def test_blocks_fill_a_card(self):
    def size(slots, heads, length):
      return decode_kernel.blocks_for(slots * heads, length).prompt

    self.assertEqual(size(1, 8, 2048), 128)
    self.assertEqual(size(32, 8, 2048), 256)
    self.assertEqual(size(128, 8, 2048), 1024)

  def test_other_caches_are_left_to_xla(self):
    layers = cache.Block(*[(jnp.zeros((1, 1, 128, 80)),)] * 2)
    stacked = cache.Block(*[jnp.zeros((1, 1, 1, 128, 128))] * 2)
    with logical.targeting('gpu'):
      self.assertTrue(decode_attention.usable(layers, 128))
      self.assertFalse(decode_attention.usable(layers, 64))
      self.assertFalse(decode_attention.usable(stacked, 128))
    self.assertFalse(decode_attention.usable(layers, 128))


def _lower(settings: state.Settings, weights, width: int) -> str:
  run = executables.Executables(settings, weights)
  key = program_keys.Decode(width)
  traced = run.jitted(key).trace(*run.signature(key).args)
  return traced.lower(lowering_platforms=('cuda',)).as_text()


def _conditionals(text: str) -> int:
  """Returns the number of conditionals that depend on data.

  Where the platform chooses, the branch is a constant.
  """
  static: set[str] = set()
  count = 0
  for name, operation, operand in _OPERATION.findall(text):
    conditional = operation in ('stablehlo.case', 'stablehlo.if')
    if operation == 'stablehlo.constant' or (conditional and operand in static):
      static.add(name)
    else:
      static.discard(name)
      count += conditional
  return count


class LoweringTest(parameterized.TestCase):
  @parameterized.parameters(('int8', 4, 4), ('bfloat16', 1, 2))
  def test_step_has_kernels_and_no_conditionals(self, kv_dtype, beams, width):
    """Lowers decoding for CUDA, which needs neither a GPU nor a plugin."""
    model = config_lib.ModelConfig(
      num_layers=2,
      model_dim=64,
      num_heads=4,
      head_dim=16,
      hidden_dim=64,
      rotary_dim=8,
      vocab_size=64,
    )
    engine = config_lib.EngineConfig(
      eos_id=0,
      num_slots=4,
      decode_widths=(2, 4),
      max_prompt=200,
      max_new_tokens=40,
      num_beams=beams,
      search='beam' if beams > 1 else 'sample',
      max_top_k=4,  # Any other number would add a conditional.
      kv_dtype=kv_dtype,
    )
    engine = platform_configs.tiled(engine)
    weights = abstract_weights.shapes(model, 'bfloat16', None)
    with logical.targeting('gpu'):
      text = _lower(state.Settings(model, engine), weights, width)
    # Each layer has two for attention, one for its norm, and one that rotates
    # queries and keys.
    self.assertEqual(text.count(_TRITON), 4 * model.num_layers)
    self.assertEqual(_conditionals(text), 0)
    if beams > 1:
      text = _lower(state.Settings(model, engine), weights, width)
      self.assertEqual(text.count(_TRITON), 0)
      self.assertEqual(_conditionals(text), model.num_layers)


if __name__ == '__main__':
  absltest.main()

"""Compares the GPU kernel for prompts, interpreted, with XLA."""

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
from saxml_ext.engine import state
from saxml_ext.engine import texts
from saxml_ext.engine.attention import attention
from saxml_ext.engine.attention import cache
from saxml_ext.engine.attention import causal_attention
from saxml_ext.engine.attention import decode_attention
from saxml_ext.engine.attention import packing
from saxml_ext.engine.kernels.tpu import block_list


class CausalAttentionTest(parameterized.TestCase):
  @parameterized.parameters(
    # The format of keys, N, G, H, the lengths before and of the chunk.
    ('float32', 2, 1, 16, 0, 20, None),
    ('float32', 1, 3, 24, 16, 30, 0.5),
    ('bfloat16', 1, 4, 16, 0, 150, None),
    ('bfloat16', 2, 1, 80, 128, 130, None),
    ('int8', 2, 2, 32, 70, 65, None),
  )
  def test_kernel_agrees_with_xla(
    self, dtype, heads, group, width, earlier, length, cap
  ):
    """Checks blocks of queries and keys that are not full, and two prompts."""
    rng = np.random.default_rng(0)
    total = earlier + length

    def draw(*shape: int) -> jax.Array:
      return jnp.asarray(rng.normal(size=(2, heads, *shape)), jnp.float32)

    keys = cache.keys_as(draw(width, total), dtype)
    values = cache.rows_as(draw(total, width), dtype)
    queries = draw(length * group, width)

    def run(attend) -> jax.Array:
      def prompts(queries, keys, values):
        def part(begin: int, end: int) -> tuple[cache.KV, cache.KV]:
          return (
            jax.tree.map(lambda x: x[..., begin:end], keys),
            jax.tree.map(lambda x: x[:, :, begin:end], values),
          )

        past = []
        if earlier:
          visible = jnp.ones((1, 1, earlier), bool)
          past = [attention.Source(*part(0, earlier), visible)]
        return attend(queries, *part(earlier, total), past, cap=cap)

      return jax.jit(prompts)(queries, keys, values)

    expected = run(attention.attend_causal)
    with decode_attention.interpreted(block_list.Blocks(16)):
      with logical.targeting('gpu'):
        got = run(causal_attention.attend)
    tolerance = 1e-5 if dtype == 'float32' else 2e-2
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=tolerance * scale)

  @parameterized.parameters(
    # The format of keys, N, G, H, the lengths of prompts, and the padding.
    ('float32', 2, 1, 16, (1, 16, 17, 1, 40, 5), 9),
    ('float32', 1, 3, 24, (7, 32, 1, 70), 0),
    ('bfloat16', 2, 1, 80, (128, 130, 1, 64, 200), 40),
    ('bfloat16', 1, 4, 16, (3, 61, 1, 150), 30),
    ('int8', 2, 2, 32, (64, 1, 65, 30), 100),
  )
  def test_tokens_of_a_row_see_their_own_prompt(
    self, dtype, heads, group, width, lengths, padding
  ):
    """Compares the kernel with XLA, and XLA with prompts one at a time."""
    rng = np.random.default_rng(1)
    size = sum(lengths) + padding

    def draw(*shape: int) -> jax.Array:
      return jnp.asarray(rng.normal(size=(1, heads, *shape)), jnp.float32)

    keys = cache.keys_as(draw(width, size), dtype)
    values = cache.rows_as(draw(size, width), dtype)
    queries = draw(size * group, width)
    slots = jnp.arange(len(lengths))
    row = packing.Row.from_lengths(
      size, jnp.asarray(lengths), slots, len(lengths)
    )
    np.testing.assert_array_equal(row.last, np.cumsum(lengths) - 1)
    firsts = jnp.arange(size) - row.positions
    by_xla = jax.jit(attention.attend_causal)
    expected = by_xla(queries, keys, values, firsts=firsts)
    with decode_attention.interpreted(block_list.Blocks(16)):
      with logical.targeting('gpu'):
        got = jax.jit(causal_attention.attend)(
          queries, keys, values, firsts=firsts
        )
    tolerance = 1e-5 if dtype == 'float32' else 2e-2
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=tolerance * scale)
    begin = 0
    for length in lengths:
      own = slice(begin, begin + length)
      begin += length
      rows = slice(own.start * group, own.stop * group)
      alone = attention.attend_causal(
        queries[:, :, rows],
        jax.tree.map(lambda x, own=own: x[..., own], keys),
        jax.tree.map(lambda x, own=own: x[:, :, own], values),
      )
      np.testing.assert_allclose(expected[:, :, rows], alone, atol=1e-5 * scale)

  def test_only_derivatives_are_left_to_xla(self):
    """Lowers programs for CUDA, which needs neither a GPU nor a plugin."""
    model = config_lib.ModelConfig(
      num_layers=3,
      model_dim=64,
      num_heads=4,
      head_dim=16,
      hidden_dim=64,
      rotary_dim=8,
      vocab_size=64,
    )
    engine = config_lib.EngineConfig(
      eos_id=0,
      num_slots=2,
      max_prompt=48,
      prefill_chunk=32,
      gradients=('embeddings',),
    )
    weights = abstract_weights.shapes(model, 'bfloat16', None)
    settings = state.Settings(model, platform_configs.tiled(engine))
    run = executables.Executables(settings, weights)
    counts = {}
    with logical.targeting('gpu'):
      for key in (
        program_keys.PrefillChunk(1, 0, 32),
        program_keys.PrefillAndInsert(1, 32, 48),
        texts.Score(),
        texts.Gradient(),
      ):
        traced = run.jitted(key).trace(*run.signature(key).args)
        text = traced.lower(lowering_platforms=('cuda',)).as_text()
        counts[key.name] = text.count('__gpu$xla.gpu.triton')
    # The last layer of a prompt computes attention of one token.
    self.assertEqual(
      counts,
      {'prefill_chunk': 3, 'prefill_and_insert': 2, 'score': 3, 'gradient': 0},
    )


if __name__ == '__main__':
  absltest.main()

"""Tests of the mapping of GPT-J's variables."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from saxml_ext.families import gptj
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.families import neox
from saxml_ext.pax import errors

_SHAPE = hf_config.HFConfig(
  num_layers=2, model_dim=12, num_heads=3, hidden_dim=20, vocab_size=7
)


def _build(name: str, tensors: list[np.ndarray]) -> np.ndarray:
  table = {v.name: v for v in layout.variables(_SHAPE)}
  return table[f'params.lm.{name}'].build(tensors)


class LayoutTest(parameterized.TestCase):
  def test_names_and_shapes_of_a_layer(self):
    prefix = 'params.lm.transformer.x_layers_1.'
    layer = {
      v.name.removeprefix(prefix): v.shape
      for v in layout.variables(_SHAPE)
      if v.name.startswith(prefix)
    }
    self.assertEqual(
      layer,
      {
        'layer_norm.scale': (12,),
        'layer_norm.bias': (12,),
        'self_attention.combined_qkv.w': (3, 12, 3, 4),
        'self_attention.post.w': (12, 3, 4),
        'ff_layer.ffn_layer1.linear.w': (12, 20),
        'ff_layer.ffn_layer1.bias.b': (20,),
        'ff_layer.ffn_layer2.linear.w': (20, 12),
        'ff_layer.ffn_layer2.bias.b': (12,),
      },
    )

  def test_names_and_shapes_around_the_layers(self):
    actual = {
      v.name: v.shape
      for v in layout.variables(_SHAPE)
      if '.x_layers_' not in v.name
    }
    self.assertEqual(
      actual,
      {
        'params.lm.embedding_lookup.emb_var': (7, 12),
        'params.lm.final_ln.scale': (12,),
        'params.lm.final_ln.bias': (12,),
        'params.lm.softmax.logits_ffn.linear.w': (12, 7),
        'params.lm.softmax.logits_ffn.bias.b': (7,),
      },
    )

  def test_built_arrays_have_the_shapes_of_the_table(self):
    for variable in layout.variables(_SHAPE):
      source = np.zeros(variable.source_shape, np.float32)
      built = variable.build([source] * len(variable.sources))
      self.assertEqual(built.shape, variable.shape, variable.name)
      self.assertTrue(built.flags.c_contiguous, variable.name)

  def test_combined_qkv_projects_like_the_three_matrices(self):
    rng = np.random.default_rng(0)
    qkv = [rng.standard_normal((12, 12)) for _ in range(3)]
    x = rng.standard_normal(12)
    w = _build('transformer.x_layers_0.self_attention.combined_qkv.w', qkv)
    for i, matrix in enumerate(qkv):
      np.testing.assert_allclose(
        np.einsum('d,dnh->nh', x, w[i]), (matrix @ x).reshape(3, 4)
      )

  def test_post_projects_like_out_proj(self):
    rng = np.random.default_rng(1)
    matrix, heads = rng.standard_normal((12, 12)), rng.standard_normal((3, 4))
    w = _build('transformer.x_layers_0.self_attention.post.w', [matrix])
    np.testing.assert_allclose(
      np.einsum('nh,dnh->d', heads, w), matrix @ heads.reshape(12)
    )

  def test_layer_norm_scale_is_the_weight_itself(self):
    weight = np.linspace(0.5, 1.5, 12)
    scale = _build('transformer.x_layers_0.layer_norm.scale', [weight])
    np.testing.assert_array_equal(scale, weight)

  def test_tied_embeddings_take_the_head_from_the_embedding(self):
    table = {v.name: v for v in layout.variables(_SHAPE, tied_embeddings=True)}
    head = table['params.lm.softmax.logits_ffn.linear.w']
    self.assertEqual(head.sources, ('transformer.wte.weight',))

  @parameterized.parameters(
    (50400, 50400, 50400),
    (50400, 50401, 50401),
    (50400, 50432, 50401),
    (50401, 50401, 50401),
    (50401, 50432, 50401),
    (4096, 4096, 4096),
    (4096, 4224, 4096),
  )
  def test_vocabulary_is_cut_for_the_official_model_only(
    self, config, rows, expected
  ):
    self.assertEqual(layout.pax_vocab_size(config, rows), expected)

  def test_sizes_that_do_not_fit_are_refused(self):
    with self.assertRaisesRegex(
      errors.CheckpointError, 'model_dim 10 is not a multiple.*3'
    ):
      hf_config.HFConfig(1, 10, 3, 40, 7)
    with self.assertRaisesRegex(errors.CheckpointError, 'num_layers is 0'):
      hf_config.HFConfig(0, 12, 3, 48, 7)

  def test_grouped_queries_need_three_tensors(self):
    grouped = hf_config.HFConfig(2, 12, 4, 20, 7, num_kv_heads=2)
    with self.assertRaisesRegex(
      errors.CheckpointError, 'GPT-NeoX has .* in one'
    ):
      layout.variables(grouped, family=neox.FAMILY)

  @parameterized.named_parameters(
    ('missing', 'layers.up', None, 'has no layers.up. '),
    ('string', 'head', 'lm_head.weight', r"tensors\['head'\] .* Use a tuple"),
  )
  def test_mistakes_in_tensors_are_refused(self, field, names, message):
    tensors = {**gptj.FAMILY.tensors, field: names}
    if names is None:
      tensors['layers.upp'] = tensors.pop(field)
      message += r".*Unused: \['layers.upp'\]"
    with self.assertRaisesRegex(ValueError, message):
      dataclasses.replace(gptj.FAMILY, tensors=tensors)


if __name__ == '__main__':
  absltest.main()

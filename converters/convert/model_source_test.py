"""Tests of checking a Hugging Face GPT-J and of building its PAX variables."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np

from converters.convert import model_source
from converters.testing import small_models
from saxml_ext.pax import errors

_Q = 'transformer.h.1.attn.q_proj.weight'
_FLOAT32 = np.dtype(np.float32)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class ModelSourceTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = self.create_tempdir().full_path

  def source(self, tensors=None, **config) -> model_source.ModelSource:
    small_models.save(self.directory, tensors, **config)
    return model_source.ModelSource(self.directory)

  def build(self, source, name, dtype=_FLOAT32) -> np.ndarray:
    variables = {v.name: v for v in source.variables}
    return source.build(variables[f'params.lm.{name}'], dtype)

  def assertRefused(self, message: str, tensors=None, **config) -> None:
    with self.assertRaisesRegex(errors.CheckpointError, message):
      self.source(tensors, **config)

  def test_builds_every_variable(self):
    tensors = small_models.state_dict()
    source = self.source(tensors)
    self.assertLen(source.variables, 5 + 8 * small_models.LAYERS)
    np.testing.assert_array_equal(
      self.build(source, 'embedding_lookup.emb_var'),
      tensors['transformer.wte.weight'],
    )
    np.testing.assert_array_equal(
      self.build(source, 'softmax.logits_ffn.linear.w'),
      tensors['lm_head.weight'].T,
    )
    qkv = self.build(
      source, 'transformer.x_layers_1.self_attention.combined_qkv.w'
    )
    head_dim = small_models.DIM // small_models.HEADS
    # The weight from input 5 to dimension 2 of head 1, in q.
    self.assertEqual(qkv[0, 5, 1, 2], tensors[_Q][head_dim + 2, 5])

  def test_bfloat16_rounds_to_nearest(self):
    value = np.full(small_models.DIM, 1 + 3 * 2**-9, np.float32)
    tensors = small_models.state_dict() | {'transformer.ln_f.weight': value}
    built = self.build(self.source(tensors), 'final_ln.scale', _BFLOAT16)
    self.assertEqual(built.dtype, _BFLOAT16)
    self.assertEqual(float(built[0]), 1 + 2**-7)

  def test_half_precision_sources_are_exact_in_float32(self):
    for dtype in (np.float16, ml_dtypes.bfloat16):
      tensors = {
        n: t.astype(dtype) for n, t in small_models.state_dict().items()
      }
      built = self.build(self.source(tensors), 'final_ln.bias')
      self.assertEqual(built.dtype, _FLOAT32)
      np.testing.assert_array_equal(
        built, tensors['transformer.ln_f.bias'].astype(np.float32)
      )

  def test_all_problems_are_named(self):
    tensors = small_models.state_dict()
    tensors[_Q] = np.zeros((16, 15), np.float32)
    del tensors['lm_head.bias']
    tensors['lora.weight'] = np.zeros(3, np.float32)
    with self.assertRaises(errors.CheckpointError) as raised:
      self.source(tensors)
    text = str(raised.exception)
    self.assertIn(f'{_Q}: expected shape [16, 16], found [16, 15]', text)
    self.assertIn('lm_head.bias: expected shape [11], found no such', text)
    self.assertIn('lora.weight: unexpected tensor of shape [3]', text)

  def test_masks_of_older_versions_are_ignored(self):
    tensors = small_models.state_dict()
    tensors['transformer.h.0.attn.bias'] = np.ones((1, 1, 8, 8), np.uint8)
    tensors['transformer.h.0.attn.masked_bias'] = np.full((), -1e9, np.float32)
    self.assertLen(self.source(tensors).variables, 21)

  def test_wrong_number_of_layers_is_refused(self):
    self.assertRefused(
      'transformer.h.2.ln_1.weight: .* no such tensor', n_layer=3
    )
    self.assertRefused('transformer.h.1.* unexpected', n_layer=1)
    self.assertRefused(
      '1000000000 layers, but there are only 25 tensors', n_layer=10**9
    )

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_nan_and_infinity_are_refused(self, value):
    tensors = small_models.state_dict()
    tensors[_Q][3, 7] = value
    source = self.source(tensors)
    with self.assertRaisesRegex(
      errors.CheckpointError,
      rf'model.safetensors: tensor {_Q} has the value {value} at \[3, 7\]',
    ):
      self.build(source, 'transformer.x_layers_1.self_attention.combined_qkv.w')

  def test_overflow_of_the_target_type_is_refused(self):
    tensors = small_models.state_dict()
    tensors['lm_head.bias'][4] = np.finfo(np.float32).max
    source = self.source(tensors)
    self.build(source, 'softmax.logits_ffn.bias.b')
    with self.assertRaisesRegex(
      errors.CheckpointError,
      r'lm_head.bias has the value inf as bfloat16 ' r'at \[4\]',
    ):
      self.build(source, 'softmax.logits_ffn.bias.b', _BFLOAT16)

  def test_integer_weights_are_refused(self):
    tensors = small_models.state_dict()
    tensors['lm_head.bias'] = np.zeros(11, np.int32)
    source = self.source(tensors)
    with self.assertRaisesRegex(
      errors.CheckpointError, 'lm_head.bias has type int32. Expected one'
    ):
      self.build(source, 'softmax.logits_ffn.bias.b')

  def test_tied_embeddings(self):
    tensors = small_models.state_dict()
    del tensors['lm_head.weight']
    source = self.source(tensors, tie_word_embeddings=True)
    np.testing.assert_array_equal(
      self.build(source, 'softmax.logits_ffn.linear.w'),
      tensors['transformer.wte.weight'].T,
    )
    self.assertRefused('lm_head.weight: .* no such tensor', tensors)

  @parameterized.parameters((50400, 50400), (50401, 50401), (50432, 50401))
  def test_official_vocabulary_is_cut(self, rows, expected):
    tensors = small_models.state_dict()
    rng = np.random.default_rng(0)
    for name, shape in (
      ('transformer.wte.weight', (rows, 16)),
      ('lm_head.weight', (rows, 16)),
      ('lm_head.bias', (rows,)),
    ):
      tensors[name] = rng.standard_normal(shape, np.float32)
    source = self.source(tensors, vocab_size=50400)
    self.assertEqual(source.config.vocab_size, expected)
    np.testing.assert_array_equal(
      self.build(source, 'softmax.logits_ffn.linear.w'),
      tensors['lm_head.weight'][:expected].T,
    )
    self.assertEqual(
      self.build(source, 'softmax.logits_ffn.bias.b').shape, (expected,)
    )

  def test_other_vocabulary_must_match_the_config(self):
    self.assertRefused(
      r'wte.weight: expected shape \[12, 16\], found \[11', vocab_size=12
    )

  def test_shards(self):
    tensors = small_models.state_dict()
    names = sorted(tensors)
    small_models.save(self.directory, {n: tensors[n] for n in names[:9]})
    one, two = (
      os.path.join(self.directory, f'model-{i}.safetensors') for i in (1, 2)
    )
    weights = os.path.join(self.directory, 'model.safetensors')
    os.rename(weights, one)
    small_models.save(self.directory, {n: tensors[n] for n in names[9:]})
    os.rename(weights, two)
    weight_map = {
      n: os.path.basename(one if n in names[:9] else two) for n in names
    }
    index = f'{weights}.index.json'

    def write_index():
      with open(index, 'w') as f:
        json.dump({'weight_map': weight_map}, f)

    write_index()
    source = model_source.ModelSource(self.directory)
    np.testing.assert_array_equal(
      self.build(source, 'final_ln.scale'), tensors['transformer.ln_f.weight']
    )
    for name in ('../model-1.safetensors', '/etc/passwd', '..', 'a\0', 3):
      weight_map[names[0]] = name
      write_index()
      with self.assertRaisesRegex(
        errors.CheckpointError, 'file in the same directory'
      ):
        model_source.ModelSource(self.directory)
    weight_map[names[0]] = 'model-3.safetensors'
    write_index()
    with self.assertRaisesRegex(
      errors.CheckpointError, 'model-3.safetensors is missing'
    ):
      model_source.ModelSource(self.directory)

  def test_missing_weights_and_directory_are_refused(self):
    small_models.save(self.directory)
    os.remove(os.path.join(self.directory, 'model.safetensors'))
    with self.assertRaisesRegex(errors.CheckpointError, 'has no weights. Exp'):
      model_source.ModelSource(self.directory)
    with self.assertRaisesRegex(errors.CheckpointError, 'not a directory'):
      model_source.ModelSource(self.directory + '/nowhere')


class BlocksTest(parameterized.TestCase):
  @parameterized.product(
    source=(np.float32, np.float16, np.float64, _BFLOAT16),
    target=(np.float32, _BFLOAT16),
    # Shapes smaller than a square, equal to it, and not divisible by it.
    shape=((1, 1), (64, 64), (65, 200), (3, 129)),
  )
  def test_transposed_copy_equals_numpy(self, source, target, shape):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal(shape).astype(source)
    out = np.empty(shape[::-1], target)
    model_source.copy_view(matrix.T, out)
    np.testing.assert_array_equal(out, matrix.T.astype(target))

  @parameterized.parameters(1, 3, 8)
  def test_rows_of_heads(self, rows):
    matrix = np.arange(96, dtype=np.float32).reshape(12, 8)
    view = matrix.T.reshape(8, 3, 4)[:rows]
    out = np.empty(view.shape, np.float32)
    model_source.copy_view(view, out)
    np.testing.assert_array_equal(out, view)
    stacked = np.empty((1, *view.shape), np.float32)
    model_source.copy_view(view[np.newaxis], stacked)
    np.testing.assert_array_equal(stacked[0], view)

  def test_vectors_and_strides(self):
    vector = np.arange(100, dtype=np.float32)[::3]
    out = np.empty(vector.shape, _BFLOAT16)
    model_source.copy_view(vector, out)
    np.testing.assert_array_equal(out, vector.astype(_BFLOAT16))

  @parameterized.product(
    dtype=(np.float32, np.float16, np.float64, _BFLOAT16),
    value=(np.nan, np.inf, -np.inf),
    # The last index lies in the second piece.
    where=((0, 0), (1, 2), (1024, 1023)),
  )
  def test_finds_nan_and_infinity(self, dtype, value, where):
    array = np.full((1025, 1024), np.finfo(np.float16).max).astype(dtype)
    array[0, :] = -1
    self.assertIsNone(model_source.first_not_finite(array))
    array[where] = value
    array[1024, 1023] = value
    self.assertEqual(model_source.first_not_finite(array), where)


if __name__ == '__main__':
  absltest.main()

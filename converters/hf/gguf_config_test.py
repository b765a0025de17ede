"""Tests for gguf_config and gguf_checkpoint."""

import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from converters.convert import model_source
from converters.convert import sources
from converters.hf import checkpoint
from converters.testing import gguf_files
from saxml_ext.engine import architecture
from saxml_ext.engine import rotary
from saxml_ext.families import hf_config
from saxml_ext.families import hf_rotary
from saxml_ext.pax import errors

_HALF = gguf_files.DIM // gguf_files.HEADS // 2
_FACTORS = 'rope_freqs.weight'


def _factors(scaling: architecture.RotaryScaling, base: float = 5e5):
  """Returns the factors that llama.cpp's converter writes for a scaling."""
  frequency = base ** (-np.arange(_HALF) / _HALF)
  wavelength = 2 * np.pi / frequency
  low, high = scaling.low_freq_factor, scaling.high_freq_factor
  smooth = (scaling.original_length / wavelength - low) / (high - low)
  smooth = np.clip(smooth, 0, 1)
  return (1 / ((1 - smooth) / scaling.factor + smooth)).astype(np.float32)


class GGUFConfigTest(parameterized.TestCase):
  def write(
    self, family: str = 'llama', tensors=None, tied: bool = False, **changes
  ) -> str:
    path = os.path.join(self.create_tempdir().full_path, 'model.gguf')
    own = gguf_files.state_dict(biases=family == 'qwen2', tied=tied)
    return gguf_files.write(
      path,
      own | (tensors or {}),
      gguf_files.metadata(family, **changes),
      family,
    )

  def config(self, *args, **kwargs) -> hf_config.HFConfig:
    return checkpoint.read_config(self.write(*args, **kwargs))[1]

  def assert_refused(self, message: str, *args, **kwargs) -> None:
    path = self.write(*args, **kwargs)
    with self.assertRaisesRegex(errors.CheckpointError, message) as caught:
      checkpoint.read_config(path)
    self.assertIn(path, str(caught.exception))

  @parameterized.product(family=('llama', 'qwen2'), tied=(False, True))
  def test_variables_match_the_hugging_face_model(self, family, tied):
    tensors = gguf_files.state_dict(biases=family == 'qwen2', tied=tied)
    directory = self.create_tempdir().full_path
    gguf_files.save_hf(directory, tensors, family)
    expected = model_source.ModelSource(directory)
    opened = sources.open_checkpoint(self.write(family, tied=tied))
    source = model_source.ModelSource(opened)
    self.assertEqual(opened.family.name, family)
    self.assertEqual(source.config, expected.config)
    self.assertEqual(
      [v.name for v in source.variables], [v.name for v in expected.variables]
    )
    for ours, theirs in zip(source.variables, expected.variables):
      np.testing.assert_array_equal(
        source.build(ours, np.dtype(np.float32)),
        expected.build(theirs, np.dtype(np.float32)),
        ours.name,
      )

  def test_quantized_variables_are_dequantized(self):
    path = os.path.join(self.create_tempdir().full_path, 'model.gguf')
    tensors = gguf_files.state_dict()
    gguf_files.write(
      path,
      tensors,
      gguf_files.metadata(),
      type_of=lambda name: gguf_files.TYPES.Q8_0,
    )
    directory = self.create_tempdir().full_path
    gguf_files.save_hf(directory, tensors)
    exact = model_source.ModelSource(directory)
    quantized = model_source.ModelSource(sources.open_checkpoint(path))
    for variable, other in zip(quantized.variables, exact.variables):
      value = quantized.build(variable, np.dtype(np.float32))
      difference = np.abs(value - exact.build(other, np.dtype(np.float32)))
      self.assertLess(difference.max(), 4 / 127, variable.name)

  @parameterized.parameters(
    ('BF16', 'BF16', 'bfloat16'),
    ('BF16', 'F16', 'float32'),
    ('BF16', 'Q8_0', 'float32'),
  )
  def test_type_of_the_weights(self, embedding, rest, expected):
    path = os.path.join(self.create_tempdir().full_path, 'model.gguf')
    gguf_files.write(
      path,
      gguf_files.state_dict(),
      gguf_files.metadata(),
      type_of=lambda name: gguf_files.TYPES[
        embedding if 'embd' in name else rest
      ],
    )
    self.assertEqual(sources.open_checkpoint(path).float_type, expected)

  def test_defaults_match_llama_cpp(self):
    config = self.config(
      tied=True,
      _rope__freq_base=None,
      _attention__head_count_kv=None,
      _vocab_size=None,
      tokenizer__ggml__padding_token_id=None,
      tensors={
        f'model.layers.{i}.self_attn.{x}_proj.weight': np.zeros(
          (gguf_files.DIM, gguf_files.DIM), np.float32
        )
        for i in range(gguf_files.LAYERS)
        for x in 'kv'
      },
    )
    self.assertEqual(config.rotary_base, 10000.0)
    self.assertEqual(config.kv_heads, gguf_files.HEADS)
    self.assertIsNone(config.pad_id)
    self.assertTrue(config.tied_embeddings)

  def test_float32_settings_become_the_decimal_numbers_of_the_author(self):
    self.assertEqual(self.config().ln_epsilon, 1e-5)

  def test_end_ids_come_from_metadata_and_known_control_tokens(self):
    config = self.config(tokenizer__ggml__eot_token_id=7)
    self.assertEqual(config.stop_ids, (2, 7, 0))
    self.assertEqual((config.bos_id, config.eos_id, config.pad_id), (1, 2, 0))

  def test_ids_of_sentencepiece_have_defaults(self):
    config = self.config(
      tokenizer__ggml__model='llama',
      tokenizer__ggml__bos_token_id=None,
      tokenizer__ggml__eos_token_id=None,
      tokenizer__ggml__token_type=None,
    )
    self.assertEqual((config.bos_id, config.stop_ids), (1, (2,)))

  def test_other_architectures_are_refused_by_name(self):
    for name in 'gemma2', 'qwen3moe', 'phi2', 'clip':
      self.assert_refused(
        f"architecture '{name}', .* Supported .*: llama, qwen2",
        general__architecture=name,
      )
    self.assert_refused("type 'adapter'", general__type='adapter')

  @parameterized.parameters(
    ('_block_count', None, 'llama.block_count is missing'),
    ('_block_count', 0, 'llama.block_count is 0'),
    ('_block_count', 'two', 'llama.block_count is "two"'),
    ('_embedding_length', 255, 'not a multiple of num_heads'),
    ('_attention__head_count', [4, 2], 'same value for all layers'),
    ('_attention__layer_norm_rms_epsilon', None, 'epsilon is missing'),
    ('_attention__value_length', 128, 'attention.value_length is 128.* 64'),
    ('_rope__dimension_count', 32, 'llama.rope.dimension_count is 32.* 64'),
    ('_expert_count', 8, 'llama.expert_count is 8. Expected 0'),
    ('_attention__sliding_window', 64, 'sliding_window is 64. Expected 0'),
    ('_logit_scale', 0.5, 'logit_scale is 0.5'),
    ('_made__up', 3, 'the setting llama.made.up = 3 is not supported'),
    ('_vocab_size', 7, r'llama.vocab_size is 7, but .* \d+ rows'),
    ('tokenizer__ggml__tokens', ['a'], r'tokens is 1, but .* \d+ rows'),
    ('tokenizer__ggml__eos_token_id', 9999, 'eos_token_id is 9999'),
    ('tokenizer__ggml__bos_token_id', 1.5, 'bos_token_id is 1.5'),
    ('_rope__scaling__type', 'yarn', 'scaling.type is "yarn".*linear'),
    ('_rope__scaling__attn_factor', 2.0, 'attn_factor is 2.0. Expected 1.0'),
    ('_rope__scaling__factor', 0.5, 'at least 1'),
    ('_rope__scaling__factor', 'x', 'at least 1'),
  )
  def test_settings_are_refused_by_name(self, key, value, message):
    self.assert_refused(message, **{key: value})

  def test_neutral_settings_are_accepted(self):
    config = self.config(
      _attention__head_count=[4, 4],
      _expert_count=0,
      _rope__dimension_count=64,
      _rope__scaling__type='none',
      _rope__scaling__factor=4.0,
    )
    self.assertIsNone(config.rotary_scaling)

  @parameterized.parameters('_rope__scaling__factor', '_rope__scale_linear')
  def test_linear_scaling_divides_all_frequencies(self, key):
    scaling = self.config(**{key: 4.0}).rotary_scaling
    for plain, scaled in zip(
      rotary.table(2, 64, 1e4), rotary.table(8, 64, 1e4, scaling)
    ):
      np.testing.assert_allclose(plain[1], scaled[4], rtol=1e-6)

  @parameterized.parameters(
    (8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (4.0, 1.0, 3.0, 4096)
  )
  def test_factors_of_llama3_become_its_scaling(self, *values):
    scaling = architecture.RotaryScaling(*values)
    config = self.config(tensors={_FACTORS: _factors(scaling)})
    self.assertEqual(config.rotary_scaling, scaling)
    model_source.ModelSource(
      sources.open_checkpoint(self.write(tensors={_FACTORS: _factors(scaling)}))
    )

  def test_equal_factors_are_linear_or_none(self):
    ones = np.ones(_HALF, np.float32)
    self.assertIsNone(self.config(tensors={_FACTORS: ones}).rotary_scaling)
    config = self.config(tensors={_FACTORS: ones * 4})
    self.assertEqual(config.rotary_scaling, hf_rotary.linear(4.0))

  def test_other_factors_are_refused(self):
    ones = np.ones(_HALF, np.float32)
    for factors in (
      ones * 0.5,
      ones * np.nan,
      np.linspace(1, 8, _HALF, dtype=np.float32),
      np.ones(_HALF - 1, np.float32) * 2,
    ):
      self.assert_refused(f'tensor {_FACTORS}', tensors={_FACTORS: factors})

  def test_factors_of_longrope_are_checked(self):
    name = 'rope_factors_short.weight'
    for factors in np.ones(_HALF - 1), np.zeros(_HALF):
      self.assert_refused(
        f'tensor {name} of shape .* Expected 32 positive factors',
        'phi3',
        tensors={name: factors.astype(np.float32)},
        _rope__dimension_count=64,
      )

  def test_missing_and_unknown_tensors_are_named(self):
    tensors = gguf_files.state_dict()
    del tensors['model.layers.1.mlp.up_proj.weight']
    tensors['blk.0.attn_q.bias'] = np.zeros(gguf_files.DIM, np.float32)
    tensors['model.norm.weight'] = np.zeros(3, np.float32)
    path = os.path.join(self.create_tempdir().full_path, 'model.gguf')
    gguf_files.write(path, tensors, gguf_files.metadata())
    with self.assertRaisesRegex(
      errors.CheckpointError,
      '(?s)that its metadata describes.*blk.1.ffn_up.weight: expected shape'
      '.*no such tensor.*output_norm.weight: .*3.*blk.0.attn_q.bias: unexpected',
    ):
      model_source.ModelSource(sources.open_checkpoint(path))

  def test_missing_embedding_is_named(self):
    tensors = gguf_files.state_dict()
    del tensors['model.embed_tokens.weight']
    path = os.path.join(self.create_tempdir().full_path, 'model.gguf')
    gguf_files.write(path, tensors, gguf_files.metadata())
    with self.assertRaisesRegex(errors.CheckpointError, 'token_embd.weight'):
      sources.open_checkpoint(path)

  def test_adapters_need_a_hugging_face_directory(self):
    with self.assertRaisesRegex(
      errors.CheckpointError, 'format of GGUF, but --lora=x'
    ):
      sources.open_checkpoint(self.write(), lora='x')

  def test_missing_file_is_named(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'a.gguf is missing'):
      sources.open_checkpoint('/nowhere/a.gguf')


if __name__ == '__main__':
  absltest.main()

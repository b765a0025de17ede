"""Tests of converting Llama checkpoints of Meta."""

import contextlib
import io
import json
import os
import random
from typing import Any
from unittest import mock

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import numpy as np
import torch
import transformers

from converters import convert_llama_ckpt
from converters.convert import conversion
from converters.convert import meta_checkpoint
from converters.testing import killed_runs
from converters.testing import meta_files
from converters.testing import unsynced
from saxml_ext.families import llama_sizes
from saxml_ext.pax import description
from saxml_ext.pax.testing import checkpoints

_DIM, _HEADS, _LAYERS, _TOKENS = 64, 8, 2, 96
_PARAMS = {
  'dim': _DIM,
  'n_layers': _LAYERS,
  'n_heads': _HEADS,
  'n_kv_heads': _HEADS,
  'multiple_of': 32,
  'ffn_dim_multiplier': 1.3,
  'norm_eps': 1e-5,
  'rope_theta': 500000.0,
  'vocab_size': _TOKENS,
}
_HIDDEN = 224  # 1.3 * 170, rounded up to a multiple of 32.
_NORM = 'layers.1.ffn_norm.weight'


def _model(kv_heads: int = _HEADS) -> transformers.LlamaForCausalLM:
  config = transformers.LlamaConfig(
    vocab_size=_TOKENS,
    hidden_size=_DIM,
    intermediate_size=_HIDDEN,
    num_hidden_layers=_LAYERS,
    num_attention_heads=_HEADS,
    num_key_value_heads=kv_heads,
    rms_norm_eps=1e-5,
    rope_parameters={'rope_type': 'default', 'rope_theta': 500000.0},
    tie_word_embeddings=False,
  )
  torch.manual_seed(3)
  model = transformers.LlamaForCausalLM(config).eval()
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.copy_(torch.randn_like(parameter) * 0.4)
  return model


class ConvertLlamaTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(unsynced.files())
    self.root = self.create_tempdir().full_path
    self.pax = os.path.join(self.root, 'pax')

  def meta(
    self,
    name: str = 'meta',
    model: transformers.LlamaForCausalLM | None = None,
    params: dict[str, Any] | None = _PARAMS,
    more: dict[str, torch.Tensor] | None = None,
    **options: Any,
  ) -> str:
    """Writes a model in Meta's format; returns the directory."""
    directory = os.path.join(self.root, name)
    os.makedirs(directory)
    tensors = meta_files.state_dict(
      (model or _model()).state_dict(), _DIM // _HEADS
    )
    meta_files.write(directory, tensors | (more or {}), params, **options)
    return directory

  def run_main(self, **changes: Any) -> tuple[int, str, str]:
    """Runs the program; returns its exit status, output and errors."""
    values = {'pax': self.pax, 'overwrite': True} | changes
    out, err = io.StringIO(), io.StringIO()
    status: Any = 0
    with (
      flagsaver.flagsaver(**values),
      contextlib.redirect_stdout(out),
      contextlib.redirect_stderr(err),
    ):
      try:
        convert_llama_ckpt.main(['convert_llama_ckpt'])
      except SystemExit as e:
        status = e.code
    return status, out.getvalue(), err.getvalue()

  def variables(self, base: str, **changes: Any) -> dict[str, np.ndarray]:
    status, _, err = self.run_main(base=base, **changes)
    self.assertEqual(status, 0, err)
    return checkpoints.read_variables(self.pax)

  def assertRefused(self, message: str, base: str, **changes: Any) -> None:
    status, _, err = self.run_main(base=base, **changes)
    self.assertEqual(status, 1)
    self.assertRegex(err, message)
    self.assertFalse(os.path.exists(f'{self.pax}/checkpoint_00000000'))

  @parameterized.product(
    shards=(1, 2, 8), embedding_axis=(0, 1), kv_heads=(8, 2)
  )
  def test_gives_the_variables_of_the_hugging_face_model(
    self, shards, embedding_axis, kv_heads
  ):
    if kv_heads == 2:
      # Each file of Meta's 8 then has a quarter of a head.
      params = _PARAMS | {'n_kv_heads': 2}
    else:
      params = {k: v for k, v in _PARAMS.items() if k != 'n_kv_heads'}
    model = _model(kv_heads)
    hf = os.path.join(self.root, 'hf')
    model.save_pretrained(hf)
    conversion.convert(hf, f'{self.root}/expected', 'float32')
    expected = checkpoints.read_variables(f'{self.root}/expected')
    base = self.meta(
      model=model, params=params, shards=shards, embedding_axis=embedding_axis
    )
    converted = self.variables(base)
    self.assertEqual(converted.keys(), expected.keys())
    for name, value in expected.items():
      np.testing.assert_array_equal(converted[name], value, name)

  def test_names_match_stock_sax(self):
    converted = self.variables(self.meta())
    prefix = 'params.lm.transformer.x_layers_1.'
    layer = {
      name.removeprefix(prefix): value.shape
      for name, value in converted.items()
      if name.startswith(prefix)
    }
    self.assertEqual(
      layer,
      {
        'layer_norm.scale': (_DIM,),
        'self_attention.combined_qkv.w': (3, _DIM, _HEADS, _DIM // _HEADS),
        'self_attention.post.w': (_DIM, _HEADS, _DIM // _HEADS),
        'ff_layer.layer_norm.scale': (_DIM,),
        'ff_layer.ffn_layer1_gate.linear.w': (_DIM, _HIDDEN),
        'ff_layer.ffn_layer1.linear.w': (_DIM, _HIDDEN),
        'ff_layer.ffn_layer2.linear.w': (_HIDDEN, _DIM),
      },
    )

  def test_description_is_written(self):
    params = _PARAMS | {'dim': 64, 'use_scaled_rope': True, 'norm_eps': 1e-6}
    self.variables(self.meta(params=params), dtype='bfloat16')
    described = description.read(self.pax)
    self.assertEqual(described.family, 'llama')
    self.assertEqual(described.rotary_base, 500000.0)
    self.assertEqual(described.rotary_scaling.factor, 32.0)
    self.assertEqual(described.ln_epsilon, 1e-6)
    self.assertEqual(described.max_positions, 131072)
    self.assertEqual((described.bos_id, described.eos_id), (1, 2))
    self.assertEqual(described.dtype, 'bfloat16')

  @parameterized.parameters(
    (dict(rope_theta=10000.0, norm_eps=1e-6), 2048),
    (dict(rope_theta=10000.0), 4096),
    (dict(rope_theta=1e6), 16384),
    ({}, 8192),
  )
  def test_maximum_length_follows_from_the_version(self, params, expected):
    self.variables(self.meta(params=_PARAMS | params))
    self.assertEqual(description.read(self.pax).max_positions, expected)

  def test_vocabulary_of_the_files(self):
    base = self.meta(params=_PARAMS | {'vocab_size': -1}, shards=2)
    self.variables(base)
    self.assertEqual(description.read(self.pax).vocab_size, _TOKENS)

  def test_half_precision_and_buffers(self):
    model = _model().to(torch.bfloat16)
    frequencies = {
      'rope.freqs': torch.ones(4),
      'layers.0.attention.inner_attention.rope.freqs': torch.ones(4),
    }
    converted = self.variables(self.meta(model=model, more=frequencies))
    np.testing.assert_array_equal(
      converted['params.lm.final_ln.scale'],
      model.model.norm.weight.float().detach().numpy(),
    )

  def test_verify_and_equal_bytes(self):
    base = self.meta(shards=2)
    status, out, err = self.run_main(base=base, verify=True)
    self.assertEqual(status, 0, err)
    self.assertIn(f'variables match {base}', out)
    first = killed_runs.digests(self.pax)
    self.assertEqual(self.run_main(base=base)[0], 0)
    self.assertEqual(killed_runs.digests(self.pax), first)

  def test_sentencepiece_model_is_copied(self):
    base = self.meta()
    for data, copied in ((b'\n\x0e\n\x05<unk>', True), (b'IQ== 0\n', False)):
      with open(os.path.join(base, 'tokenizer.model'), 'wb') as file:
        file.write(data)
      self.pax += 'x'
      status, _, err = self.run_main(base=base)
      self.assertEqual(status, 0)
      path = os.path.join(self.pax, 'tokenizer.model')
      self.assertEqual(os.path.exists(path), copied)
      self.assertEqual('Copy tokenizer.json' in err, not copied)

  def test_flags_of_stock_sax(self):
    with flagsaver.flagsaver():
      flags.FLAGS(
        [
          'convert_llama_ckpt',
          '--base-model-path=a',
          '--pax-model-path=b',
          '--model-size=70b',
        ]
      )
      self.assertEqual(flags.FLAGS.base, 'a')
      self.assertEqual(flags.FLAGS.pax, 'b')
      self.assertEqual(flags.FLAGS.model_size, '70b')

  def test_model_size_replaces_missing_params(self):
    base = self.meta(params=None)
    self.assertRefused('has no params.json.*set --model-size', base)
    small = meta_checkpoint.MetaCheckpoint(self.meta('small')).config
    # The real sizes have at least 2 GB.
    with mock.patch.dict(llama_sizes.SIZES, {'7b': small}):
      status, _, err = self.run_main(base=base, model_size='7b')
      self.assertEqual(status, 0, err)
      self.assertIn('Assuming norm_eps=1e-05, rope_theta=500000 and', err)
      self.assertEqual(description.read(self.pax).ln_epsilon, 1e-5)

  def test_model_size_must_match(self):
    self.assertRefused(
      'params.json has num_layers 2, but --model-size=7b means 32',
      self.meta(),
      model_size='7b',
    )
    self.assertRefused(
      '--model-size=7b states 32 layers, but there are only 21 tensors',
      self.meta('other', params=None),
      model_size='7b',
    )

  @parameterized.parameters(
    ({'n_layers': 3}, 'that params.json describes:(.|\n)*layers.2.*no such'),
    ({'dim': 128}, r'tok_embeddings.weight: expected shape \[96, 128\]'),
    ({'n_kv_heads': 2}, r'wk.weight: expected shape \[16, 64\], found \[64, 6'),
    ({'n_kv_heads': -8}, 'n_kv_heads is -8. Expected a number between 0'),
    ({'n_heads': 7}, 'params.json: model_dim 64 is not a multiple of num_he'),
    ({'vocab_size': 95}, r'expected shape \[95, 64\], found \[96, 64\]'),
    ({'multiple_of': 64}, r'w1.weight: expected shape \[256, 64\]'),
    ({'norm_eps': 0.0}, 'norm_eps is 0.0. Expected a number between 0 and 1'),
    ({'norm_eps': float('nan')}, 'norm_eps is nan'),
    ({'rope_theta': 'x'}, r'Expected `float`, got `str` - at `\$.rope_theta`'),
    ({'quantization_args': {}}, 'unknown field `quantization_args`'),
  )
  def test_params_must_fit_the_tensors(self, change, message):
    self.assertRefused(message, self.meta(params=_PARAMS | change, shards=2))

  def test_params_must_be_an_object(self):
    base = self.meta()
    with open(os.path.join(base, 'params.json'), 'w') as file:
      file.write('[]')
    self.assertRefused('params.json contains a list', base)

  def test_missing_file_is_reported(self):
    base = self.meta(shards=2)
    os.unlink(os.path.join(base, 'consolidated.00.pth'))
    self.assertRefused('has the files 01 of consolidated.NN.pth', base)

  def test_norms_must_be_equal_in_all_files(self):
    base = self.meta(shards=2)
    path = os.path.join(base, 'consolidated.01.pth')
    tensors = torch.load(path)
    tensors[_NORM][5] += 1
    torch.save(tensors, path)
    self.assertRefused(
      f'tensor {_NORM} of .*consolidated.01.pth differs from that of', base
    )

  def test_files_must_have_the_same_tensors(self):
    base = self.meta(shards=2)
    path = os.path.join(base, 'consolidated.01.pth')
    tensors = torch.load(path)
    left_out = tensors.pop(_NORM)
    torch.save(tensors, path)
    self.assertRefused(f'01.pth has no tensor {_NORM}, unlike', base)
    torch.save(tensors | {_NORM: left_out[:5]}, path)
    self.assertRefused(
      rf'tensor {_NORM} has shape \[5\] in .*01.pth, and \[64\] in', base
    )

  def test_bad_value_is_named_with_its_position(self):
    base = self.meta(shards=2)
    path = os.path.join(base, 'consolidated.01.pth')
    tensors = torch.load(path)
    tensors['layers.0.feed_forward.w2.weight'][3, 7] = float('nan')
    torch.save(tensors, path)
    self.assertRefused(
      r'00.pth to consolidated.01.pth: tensor layers.0.feed_forward.w2.weight'
      r' has the value nan at \[3, 119\]',
      base,
    )

  def test_code_in_a_file_is_refused(self):
    base = self.meta()
    canary = os.path.join(self.root, 'canary')

    class Code:
      def __reduce__(self):
        return os.mkdir, (canary,)

    torch.save(
      {'norm.weight': Code()}, os.path.join(base, 'consolidated.00.pth')
    )
    self.assertRefused(r'is refused: its pickle refers to \w+.mkdir', base)
    self.assertFalse(os.path.exists(canary))

  def test_hugging_face_directory(self):
    base = os.path.join(self.root, 'hf')
    _model().save_pretrained(base)
    self.assertRefused(
      'config.json has num_layers 2, but --model-size=7b means 32',
      base,
      model_size='7b',
    )
    self.assertLen(self.variables(base), 17)
    with open(os.path.join(base, 'config.json'), 'w') as file:
      json.dump({'model_type': 'gptj'}, file)
    status, _, err = self.run_main(base=base)
    self.assertEqual(status, 1)
    self.assertIn('config.json', err)

  def test_adapters_need_a_hugging_face_model(self):
    self.assertRefused(
      'has the format of Meta, but --lora', self.meta(), lora='/adapter'
    )

  def test_killed_runs_give_the_same_bytes(self):
    base = self.meta(shards=2)
    expected, again = self.pax, f'{self.pax}2'

    def command(target: str) -> tuple[str, ...]:
      return 'convert_llama_ckpt', f'--base={base}', f'--pax={target}'

    killed_runs.run(*command(expected))
    killed_runs.kill(
      lambda: killed_runs.start(*command(again), '--resume'),
      again,
      17,
      3,
      random.Random(0),
      0.05,
    )
    killed_runs.run(*command(again), '--resume')
    self.assertEqual(killed_runs.digests(again), killed_runs.digests(expected))


if __name__ == '__main__':
  absltest.main()

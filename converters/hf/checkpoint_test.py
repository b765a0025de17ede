"""Tests of reading config.json."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from safetensors import numpy as safetensors_numpy

from converters.hf import checkpoint
from converters.testing import small_models
from saxml_ext.families import hf_config
from saxml_ext.pax import errors

_POINTER = 'version https://git-lfs/spec/v1\noid sha256:4d7a\nsize 9\n'


class HFConfigTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = self.create_tempdir().full_path

  def read(self, text: str) -> hf_config.HFConfig:
    with open(os.path.join(self.directory, 'config.json'), 'w') as f:
      f.write(text)
    _, config = checkpoint.read_config(self.directory)
    return config

  def test_reads_the_fields_and_their_defaults(self):
    self.assertEqual(
      self.read(json.dumps(small_models.config())),
      hf_config.HFConfig(
        num_layers=2,
        model_dim=16,
        num_heads=2,
        hidden_dim=64,
        vocab_size=11,
        rotary_dim=4,
        max_positions=128,
        ln_epsilon=1e-5,
        tied_embeddings=False,
        bos_id=3,
        eos_id=4,
        pad_id=None,
        stop_ids=(4,),
      ),
    )

  def test_files_that_are_not_regular_are_refused(self):
    path = os.path.join(self.directory, 'config.json')
    os.mkfifo(path)
    with self.assertRaisesRegex(errors.CheckpointError, 'not a regular file'):
      checkpoint.read_config(self.directory)
    os.remove(path)
    os.symlink('/dev/zero', path)
    with self.assertRaisesRegex(errors.CheckpointError, 'is a link to'):
      checkpoint.read_config(self.directory)
    os.remove(path)
    self.read(json.dumps(small_models.config()))
    for name in ('model.safetensors', 'pytorch_model.bin'):
      weights = os.path.join(self.directory, name)
      os.mkfifo(weights)
      with self.assertRaisesRegex(
        errors.CheckpointError, f'{name} cannot be read: it is not a regular'
      ):
        checkpoint.HFCheckpoint(self.directory)
      os.remove(weights)

  def test_an_answer_may_end_in_one_of_several_tokens(self):
    config = self.read(json.dumps(small_models.config(eos_token_id=[4, 7])))
    self.assertEqual((config.eos_id, config.stop_ids), (4, (4, 7)))
    with self.assertRaisesRegex(errors.CheckpointError, 'eos_token_id.*-1'):
      self.read(json.dumps(small_models.config(eos_token_id=[4, -1])))

  def test_end_ids_of_both_kinds_of_checkpoints(self):
    self.assertEqual(checkpoint.end_ids(self.directory), ())
    self.read(json.dumps(small_models.config(eos_token_id=[4, 7])))
    self.assertEqual(checkpoint.end_ids(self.directory), (4, 7))
    path = os.path.join(self.directory, 'gptj_config.json')
    for text, expected in (
      ('{"eos_token_id": 0}', (0,)),
      ('{"eos_token_id": 3, "stop_token_ids": [3, 5]}', (3, 5)),
    ):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      self.assertEqual(checkpoint.end_ids(self.directory), expected)

  def test_end_ids_of_generation_config_come_first(self):
    config = json.dumps(small_models.config())
    path = os.path.join(self.directory, 'generation_config.json')
    for text, expected in (
      ('{}', (4,)),
      ('{"eos_token_id": null}', (4,)),
      ('{"eos_token_id": 7}', (7,)),
      ('{"eos_token_id": [8, 4]}', (8, 4)),
    ):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      sizes = self.read(config)
      self.assertEqual((sizes.eos_id, sizes.stop_ids), (expected[0], expected))
    for text, message in (
      ('{"eos_token_id": "</s>"}', 'eos_token_id is "</s>"'),
      ('{', 'is not JSON'),
    ):
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      with self.assertRaisesRegex(
        errors.CheckpointError, f'generation_config.json.*{message}'
      ):
        self.read(config)

  @parameterized.parameters(
    (dict(auto_map={'AutoConfig': 'evil.Config'}), 'auto_map.*was not run'),
    (
      dict(model_type='mixtral'),
      "model_type 'mixtral' is not supported. Available: gemma, gpt_neox, gptj,",
    ),
    (dict(activation_function='relu'), 'activation_function is "relu"'),
    (
      dict(n_layer=None),
      'n_layer is null. Expected an integer between 1 and 2147483647',
    ),
    (dict(n_embd='16'), 'n_embd is "16"'),
    (dict(n_head=3), 'model_dim 16 is not a multiple of num_heads 3'),
    (dict(n_layer=10**30), 'n_layer is'),
    (dict(vocab_size=True), 'vocab_size is true'),
    (dict(rotary_dim=10), 'rotary_dim is 10. .* even number of at most 8'),
    (dict(rotary_dim=3), 'rotary_dim is 3'),
    (dict(layer_norm_epsilon=-1), 'layer_norm_epsilon'),
    (dict(eos_token_id='</s>'), 'eos_token_id is "</s>"'),
  )
  def test_bad_values_are_refused(self, changes, message):
    with self.assertRaisesRegex(errors.CheckpointError, message):
      self.read(json.dumps(small_models.config(**changes)))

  def test_copies_of_the_code_of_transformers_are_ignored(self):
    changes = {
      'AutoConfig': 'configuration_gptj.GPTJConfig',
      'AutoModelForCausalLM': 'modeling_gptj.GPTJForCausalLM',
      'AutoTokenizer': 'somebody/tokenizer',
    }
    self.read(json.dumps(small_models.config(auto_map=changes)))
    changes['AutoModelForCausalLM'] = 'modeling_gptj.OtherForCausalLM'
    with self.assertRaisesRegex(errors.CheckpointError, 'was not run'):
      self.read(json.dumps(small_models.config(auto_map=changes)))

  def test_json_without_an_object_is_refused(self):
    for text, message in (('', 'is not JSON'), ('[]', 'contains a list')):
      with self.assertRaisesRegex(errors.CheckpointError, message):
        self.read(text)

  @parameterized.parameters(
    ({'quantization_config': {'quant_method': 'mxfp4'}}, r'\(mxfp4\)'),
    ({'quantization_config': {'quant_method': 'aqlm'}}, r'\(aqlm\)'),
    ({'quantization_config': {'quant_method': 'new'}}, r'\(new\)'),
    ({'quantization_config': {'bits': 4}}, r'\(unknown method\)'),
    ({'quantization_config': 'int4'}, r'\(unknown method\)'),
    ({'compression_config': ['int']}, r'\(compressed-tensors\)'),
    ({'quantization': {'bits': 4}}, r'\(mlx\)'),
  )
  def test_quantized_weights_are_refused_by_method(self, entries, method):
    with self.assertRaisesRegex(
      errors.CheckpointError,
      f'quantized {method}.* awq, bitsandbytes, .*gptq. .* GGUF file of it',
    ):
      # The method is named even if the model is not supported otherwise.
      self.read(json.dumps({'model_type': 'mixtral', **entries}))

  def test_settings_of_quantization_come_before_the_model_type(self):
    with self.assertRaisesRegex(
      errors.CheckpointError,
      'quantization_config: format is "marlin-24". Expected one of "int-q',
    ):
      settings = {'quant_method': 'compressed-tensors', 'format': 'marlin-24'}
      self.read(json.dumps({'quantization_config': settings}))

  def test_empty_quantization_is_none(self):
    self.read(json.dumps(small_models.config(quantization_config={})))
    self.assertEqual(checkpoint.quantization(self.directory), '')
    settings = {'quant_method': 'fp8'}
    self.read(json.dumps(small_models.config(quantization_config=settings)))
    self.assertEqual(checkpoint.quantization(self.directory), 'FP8')

  @parameterized.parameters(
    ([], 'has no config.json. It has no files'),
    (['b.txt', 'a.txt'], 'It has a.txt, b.txt'),
    (['adapter_config.json'], 'convert_hf --base=MODEL --lora='),
    (['small.gguf'], 'Use the path of the GGUF file'),
  )
  def test_missing_config_names_the_remedy(self, names, message):
    for name in names:
      with open(os.path.join(self.directory, name), 'w') as f:
        f.write('{}')
    with self.assertRaisesRegex(errors.CheckpointError, message):
      checkpoint.read_config(self.directory)

  @parameterized.parameters('config.json', 'generation_config.json')
  def test_pointers_of_git_lfs_are_recognized(self, name):
    self.read(json.dumps(small_models.config()))
    with open(os.path.join(self.directory, name), 'w') as f:
      f.write(_POINTER)
    with self.assertRaisesRegex(
      errors.CheckpointError, f'{name} is a pointer of Git LFS.*git lfs pull'
    ):
      checkpoint.read_config(self.directory)


class WeightsTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.directory = self.create_tempdir().full_path
    self.tensors = small_models.state_dict()

  def _write(self, **files: dict[str, np.ndarray]) -> None:
    with open(os.path.join(self.directory, 'config.json'), 'w') as f:
      json.dump(small_models.config(), f)
    for name, tensors in files.items():
      path = os.path.join(self.directory, name)
      safetensors_numpy.save_file(tensors, path)

  def _check(self) -> None:
    opened = checkpoint.HFCheckpoint(self.directory)
    self.assertEqual(
      opened.shapes, {name: x.shape for name, x in self.tensors.items()}
    )
    for name, tensor in self.tensors.items():
      np.testing.assert_array_equal(opened.read(name), tensor)
      opened.release(name)

  def test_names_without_prefix_are_read(self):
    bare = {
      name.removeprefix('transformer.'): tensor
      for name, tensor in self.tensors.items()
    }
    self._write(**{'model.safetensors': bare})
    self._check()

  def test_complete_shards_need_no_index(self):
    names = sorted(self.tensors)
    parts = [{n: self.tensors[n] for n in names[i::2]} for i in range(2)]
    self._write(
      **{
        'model-00001-of-00002.safetensors': parts[0],
        'model-00002-of-00002.safetensors': parts[1],
      }
    )
    self._check()

  def test_missing_shard_is_reported(self):
    self._write(**{'model-00001-of-00002.safetensors': self.tensors})
    with self.assertRaisesRegex(
      errors.CheckpointError, 'weights in model-00001-of.*Download the missing'
    ):
      checkpoint.HFCheckpoint(self.directory)

  def test_single_variant_is_read(self):
    self._write(**{'model.fp16.safetensors': self.tensors})
    self._check()

  def test_several_variants_are_named(self):
    self._write(
      **{
        'model.fp16.safetensors': self.tensors,
        'model.bf16.safetensors': self.tensors,
      }
    )
    with self.assertRaisesRegex(
      errors.CheckpointError, 'model.bf16.safetensors, model.fp16.*keep one'
    ):
      checkpoint.HFCheckpoint(self.directory)

  def test_other_formats_are_listed(self):
    self._write()
    for name in ('tf_model.h5', 'small.gguf'):
      with open(os.path.join(self.directory, name), 'w') as f:
        f.write('x')
    with self.assertRaisesRegex(
      errors.CheckpointError,
      'has no weights. .* It has config.json, small.gguf, tf_model.h5.*path of'
      ' the GGUF file',
    ):
      checkpoint.HFCheckpoint(self.directory)

  def test_pointers_of_git_lfs_are_recognized(self):
    self._write()
    for name in ('model.safetensors', 'pytorch_model.bin'):
      path = os.path.join(self.directory, name)
      with open(path, 'w') as f:
        f.write(_POINTER)
      with self.assertRaisesRegex(
        errors.CheckpointError, f'{name} is a pointer of Git LFS'
      ):
        checkpoint.HFCheckpoint(self.directory)
      os.remove(path)

  @parameterized.parameters('F8_E4M3', 'F8_E5M2', 'F8_E8M0', 'F4')
  def test_types_of_quantized_weights_are_named(self, dtype):
    self._write()
    header = json.dumps(
      {'a': {'dtype': dtype, 'shape': [8], 'data_offsets': [0, 8]}}
    ).encode()
    path = os.path.join(self.directory, 'model.safetensors')
    with open(path, 'wb') as f:
      f.write(len(header).to_bytes(8, 'little') + header + bytes(8))
    with self.assertRaisesRegex(
      errors.CheckpointError, f'a has the type {dtype} of quantized weights'
    ):
      checkpoint.HFCheckpoint(self.directory)


if __name__ == '__main__':
  absltest.main()
